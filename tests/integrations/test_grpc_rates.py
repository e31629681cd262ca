"""Rules before real gRPC servers: which calls are charged, what those are told that are refused, what is settled."""

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

import batchlimit
from batchlimit import RateLimiter
from batchlimit.integrations import grpc as faces
from batchlimit.integrations.address import TrustedProxies
from batchlimit.integrations.grpc import CallResponse, RateLimitInterceptor
from batchlimit.integrations.grpc.answer import address_of, status_details
from batchlimit.laws import Fixed
from batchlimit.rules import Rule
from tests.awaiting import awaited
from tests.integrations.gate import Gate
from tests.integrations.limited_grpc import serving
from tests.integrations.service import KINDS, SERVED, AsyncService, Service
from tests.integrations.stage import Call, Client, server
from tests.integrations.structured import read_limits
from tests.sync.stage import ARRIVAL, until

OK, EXHAUSTED = grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED
UNAVAILABLE, UNAUTHENTICATED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED
IP = Rule("ip", "2/minute", key="ip:{ip}")


@pytest.fixture(autouse=True)
def _patient() -> None:
    """These limits live in the time of the test: no stall matters."""


def user(context: Any) -> dict[str, object]:
    return {"user": dict(context.invocation_metadata()).get("user")}


def never(gate: Gate) -> Iterator[str]:
    """Requests of which none comes before the gate is open."""
    gate.stop()
    yield "a"


def retry_info(call: Call) -> error_details_pb2.RetryInfo:
    """What the libraries of gRPC read of a call that was refused."""
    assert call.code is not OK
    status = rpc_status.from_call(call._call)
    assert status is not None
    assert status.code == call.code.value[0]
    info = error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(info)
    return info


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_burst_as_many_as_the_limit_are_served_and_one_more_as_told(asynchronous: bool, kind: str) -> None:
    with serving(asynchronous, IP) as scene, scene.client() as client:
        begun = [client.call(kind, "a", "b") for _ in range(5)]
        assert sorted(each.code is OK for each in begun) == [False, False, False, True, True]
        refused = next(each for each in begun if each.code is EXHAUSTED)
        assert refused.details.startswith("the quota is exceeded: ip; retry after 30.")
        assert refused.told["batchlimit-reason"] == "quota"
        assert 30 <= int(refused.told["retry-after"]) <= 34
        assert refused.told["grpc-retry-pushback-ms"] in ("30000", "30001")
        scene.limits.clock.pass_by(int(refused.told["retry-after"]) + ARRIVAL)
        assert client.call(kind, "a", "b").answers() == SERVED[kind]
        assert client.call(kind, "a").code is EXHAUSTED


def test_a_refusal_carries_retry_info_that_grpc_libraries_read(asynchronous: bool) -> None:
    with serving(asynchronous, Rule("all", "3/minute burst 1", key="all")) as scene, scene.client() as client:
        assert client.call("unary_unary", "a").code is OK
        scene.limits.clock.pass_by(12.75)
        refused = client.call("unary_unary", "a")
        delay = retry_info(refused).retry_delay
        seconds = delay.seconds + delay.nanos / 1e9
        assert 7 < seconds < 8
        assert refused.details.endswith(f"retry after {seconds:.3f} s")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, (0, 0)),
        (0.25, (0, 250_000_000)),
        (127.0, (127, 0)),
        (128.5, (128, 500_000_000)),
        (1e300, (315_576_000_000, 0)),
    ],
)
def test_a_delay_is_written_as_protobuf_reads_it(seconds: float, expected: tuple[int, int]) -> None:
    status = status_pb2.Status.FromString(status_details(8, "später " * 30, seconds))
    info = error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(info)
    assert (status.code, status.message) == (8, "später " * 30)
    assert (info.retry_delay.seconds, info.retry_delay.nanos) == expected


def test_keys_are_made_of_the_metadata(asynchronous: bool) -> None:
    rule = Rule("user", "1/hour", key="user:{user}")
    with serving(asynchronous, rule, identify=user) as scene, scene.client() as client:
        for name, code in [("ann", OK), ("bob", OK), ("ann", EXHAUSTED)]:
            assert client.call("unary_unary", "a", metadata=(("user", name),)).code is code
        nobody = client.call("unary_unary", "a")
        assert (nobody.code, nobody.told) == (UNAUTHENTICATED, {"batchlimit-reason": "identity"})


def test_behind_a_trusted_proxy_the_client_is_who_it_says(asynchronous: bool) -> None:
    options: Any = {"proxies": TrustedProxies(["127.0.0.1"])}
    with serving(asynchronous, Rule("ip", "1/hour", key="ip:{ip}"), **options) as scene, scene.client() as client:
        for ip, code in [("192.0.2.1", OK), ("192.0.2.2", OK), ("192.0.2.1", EXHAUSTED)]:
            assert client.call("unary_unary", "a", metadata=(("x-forwarded-for", ip),)).code is code


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.0.2.1:5000", "192.0.2.1"),
        ("ipv6:%5B2001:db8::1%5D:5000", "[2001:db8::1]"),
        ("ipv6:[::1]:5000", "[::1]"),
        ("unix:/run/it", None),
        ("unix-abstract:it", None),
    ],
)
def test_the_address_of_a_peer(peer: str, address: str | None) -> None:
    assert address_of(peer) == address


@pytest.mark.parametrize("kind", KINDS)
def test_an_admitted_call_is_told_what_is_left(asynchronous: bool, kind: str) -> None:
    with serving(asynchronous, IP) as scene, scene.client() as client:
        told = client.call(kind, "a").told
        limit = read_limits({name.encode(): value.encode() for name, value in told.items()})["ip"]
        assert (limit.q, limit.w, limit.r) == (2, 60, 1)


def test_a_store_that_is_away_makes_calls_unavailable_unless_their_rule_is_open(asynchronous: bool) -> None:
    closed = Rule("closed", "9/hour", key="closed", match="/test.Echo/unary_unary")
    opened = Rule("open", "9/hour", key="open", match="/test.Echo/unary_stream", on_failure="open")
    with serving(asynchronous, closed, opened) as scene, scene.client() as client:
        scene.limits.store.away |= {"closed", "open"}
        refused = client.call("unary_unary", "a")
        assert (refused.code, refused.told["batchlimit-reason"]) == (UNAVAILABLE, "store")
        assert (refused.told["retry-after"], retry_info(refused).retry_delay.seconds) == ("1", 1)
        assert client.call("unary_stream", "a").code is OK


def test_a_cost_that_never_fits_tells_a_channel_not_to_retry(asynchronous: bool) -> None:
    with serving(asynchronous, Rule("all", "3/hour", key="all", cost=lambda _: 4)) as scene, scene.client() as client:
        refused = client.call("unary_unary", "a")
        assert (refused.code, refused.told["grpc-retry-pushback-ms"]) == (EXHAUSTED, "-1")
        assert "retry-after" not in refused.told


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("told", "left"),
    [
        ("a", 5),
        ("abort UNAUTHENTICATED", 4),
        ("status UNAUTHENTICATED", 4),
        ("raise OSError", 5),
        ("abort INTERNAL", 5),
    ],
)
def test_only_calls_with_some_status_are_charged(asynchronous: bool, kind: str, told: str, left: int) -> None:
    """The number is that of HTTP: a file of rules serves both."""
    rule = Rule("failed", "5/hour", key="failed", charge=[401])
    with serving(asynchronous, rule) as scene, scene.client() as client:
        client.call(kind, told)._end()
        scene.limits.until_left("failed", left)


def test_a_charge_sees_status_metadata_and_messages(asynchronous: bool) -> None:
    seen: list[CallResponse] = []

    def charge(response: CallResponse) -> int:
        seen.append(response)
        return response.sent

    rule = Rule("sent", "50/hour", key="sent", cost=10, charge=charge)
    with serving(asynchronous, rule) as scene, scene.client() as client:
        assert client.call("stream_stream", "a", "b", "c").code is OK
        scene.limits.until_left("sent", 47)
        assert client.call("unary_stream", "raise TypeError").code is grpc.StatusCode.UNKNOWN
        scene.limits.until_left("sent", 46)
    good, bad = seen
    assert (good.code, good.status, good.complete, good.sent, good.error) == (OK, 200, True, 3, None)
    assert dict(good.headers)[b"ratelimit"].startswith(b'"sent";r=40')
    assert (bad.code, bad.status, bad.complete, bad.sent) == (grpc.StatusCode.UNKNOWN, 500, False, 1)
    assert isinstance(bad.error, TypeError)


@pytest.mark.parametrize("cancels", [True, False], ids=["cancels", "loses its connection"])
def test_a_stream_whose_client_leaves_is_settled(asynchronous: bool, cancels: bool) -> None:
    rule = Rule("stream", "50/hour", key="stream", cost=10, charge=lambda r: 0 if r.status == 499 else 50)
    with serving(asynchronous, rule) as scene:
        with scene.client() as client:
            stream = client.call("unary_stream", "flood")
            assert stream.first() == "first"
            assert scene.limits.left("stream") == 40
            if cancels:
                stream.cancel()
                scene.limits.until_left("stream", 50)
        scene.limits.until_left("stream", 50)


@pytest.mark.parametrize("kind", ["stream_unary", "stream_stream"])
def test_messages_of_a_stream_are_limited(asynchronous: bool, kind: str) -> None:
    messages = [Rule("messages", "2/minute", key="messages:{ip}", match="/test.Echo/*")]
    with serving(asynchronous, messages=messages) as scene, scene.client() as client:
        assert client.call(kind, "a", "b").code is OK
        refused = client.call(kind, "a")
        assert (refused.code, refused.told["batchlimit-reason"]) == (EXHAUSTED, "quota")
        assert retry_info(refused).retry_delay.seconds >= 29
        assert client.call("unary_unary", "a").code is OK
        scene.limits.clock.pass_by(30.0)
        assert client.call(kind, "a").code is OK
        assert scene.counts("messages") == {"matched": 4, "acquired": 3, "refused": 1}


def test_a_refusal_waits_for_no_request_of_its_stream(asynchronous: bool) -> None:
    with serving(asynchronous, Rule("none", "0/s", key="none")) as scene, scene.client() as client:
        assert client.call("stream_unary", later=never(scene.gate)).code is EXHAUSTED
        scene.gate.open()


def test_a_limiter_of_the_other_kind_is_refused_at_the_start() -> None:
    with pytest.raises(TypeError, match="RateLimiter, a URL or a function"):
        RateLimitInterceptor(7, [IP])  # type: ignore[arg-type]
    with RateLimiter.from_url("memory://", "1/s") as limiter:
        assert repr(RateLimitInterceptor(limiter, [IP])) == "<RateLimitInterceptor <Rules ip>>"


@pytest.mark.filterwarnings("ignore:.* was never completed:ResourceWarning")  # it is to be first
@pytest.mark.parametrize("api", ["", "Async"])
def test_a_refusal_keeps_no_place_of_an_interceptor_behind(api: str, request: pytest.FixtureRequest) -> None:
    """Nor until garbage is collected."""
    places = getattr(batchlimit, f"{api}ConcurrencyLimiter")(Fixed(1))
    behind = getattr(faces, f"{api}ConcurrencyInterceptor")(places)
    limits = getattr(faces, f"{api}RateLimitInterceptor")("memory://", [Rule("none", "0/s", key="none")])
    service = (AsyncService if api else Service)(Gate())
    request.addfinalizer(gc.enable)
    gc.disable()
    with server(bool(api), service, limits, behind) as address, grpc.insecure_channel(address) as channel:
        for kind in KINDS:
            assert Client(channel).call(kind, "a").code is EXHAUSTED
            until(lambda: places.statistics().in_flight == 0)


class Left:
    """The context of a call whose client has left: grpcio knows no peer of it."""

    def __init__(self, asynchronous: bool) -> None:
        self._is_async, self.codes = asynchronous, list[grpc.StatusCode]()

    def __getattr__(self, name: str) -> Any:
        return lambda: {"is_active": True, "peer": "", "invocation_metadata": (), "time_remaining": None}[name]

    def abort(self, code: grpc.StatusCode, details: str) -> Any:
        self.codes.append(code)
        if not self._is_async:
            raise RuntimeError(details)
        return self._abort(details)

    async def _abort(self, details: str) -> None:
        raise RuntimeError(details)


def test_a_call_whose_client_has_left_is_charged_to_nothing_and_lacks_no_key(asynchronous: bool) -> None:
    found: Any = grpc.stream_unary_rpc_method_handler(echo if asynchronous else never)
    call, context = SimpleNamespace(method="/shop.Orders/Pay"), Left(asynchronous)
    with serving(asynchronous, IP) as scene:
        if asynchronous:
            handler = awaited(scene.interceptor.intercept_service, lambda _: echo(found, None), call)
        else:
            handler = scene.interceptor.intercept_service(lambda _: found, call)
        with pytest.raises(RuntimeError, match="The client has left"):
            scene.limits.do(handler.stream_unary, iter(()), context)
        assert context.codes == [grpc.StatusCode.CANCELLED]
        assert scene.counts("ip") == {}


async def echo(told: Any, context: object) -> Any:
    return told
