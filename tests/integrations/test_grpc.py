"""Interceptors on real gRPC servers: who is let in, what those are told that are not, and how long a permit is held."""

import gc
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn

import grpc
import grpc.aio
import pytest

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimited, ConcurrencyLimiter, Partitions
from batchlimit.integrations import grpc as faces
from batchlimit.integrations.grpc import by_metadata
from batchlimit.integrations.grpc.answer import PUSHBACK, refused_by_limiter
from batchlimit.integrations.grpc.concurrency import _MOST
from batchlimit.laws import Fixed, Settable
from batchlimit.rules import Rule
from tests.awaiting import awaited
from tests.integrations.gate import Gate
from tests.integrations.service import KINDS, SERVED
from tests.integrations.stage import APIS, Client, SetUp, on_asyncio, server, threaded
from tests.recording import Recording
from tests.sync.stage import until

OK, EXHAUSTED = grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_is_let_in_is_served_as_without_a_limiter(stage: SetUp, kind: str) -> None:
    law = Recording(1)
    with stage(law) as scene, scene.client() as client:
        assert client.call(kind, "a", "b").answers() == SERVED[kind]
    assert [(sample.operation, sample.dropped) for sample in law.samples] == [(f"/test.Echo/{kind}", False)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_call_is_told_why_and_when_to_come_back(stage: SetUp, kind: str) -> None:
    with stage(Recording(1)) as scene, scene.client() as client:
        assert client.call("unary_unary", "that one may know how long a call takes").code is OK
        scene.rest()
        with scene.held(client):
            refused = client.call(kind, "a")
            assert (refused.code, refused.told["batchlimit-reason"]) == (EXHAUSTED, "limit")
            assert int(refused.told["grpc-retry-pushback-ms"]) >= 1
            assert "1 calls are under way, the limit is 1" in refused.details


def test_a_refusal_takes_no_worker() -> None:
    """Every worker is busy, and stays so until all refusals have arrived."""
    with threaded(Recording(2), workers=2) as scene, scene.client() as client:
        held = [client.call("unary_unary", "hold") for _ in range(2)]
        scene.gate.meet(2)
        assert [client.call(kind, "a").code for kind in KINDS] == [EXHAUSTED] * 4
        scene.gate.open()
        assert [call.answers() for call in held] == [["hold"]] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_on_asyncio_leaves_no_error_to_the_garbage_collector(kind: str) -> None:
    with on_asyncio(Recording(1)) as scene, scene.client() as client, scene.held(client):
        gc.disable()
        try:
            assert client.call(kind, "a").code is EXHAUSTED
            assert not [each for each in gc.get_objects() if isinstance(each, grpc.aio.AbortError)]
        finally:
            gc.enable()


def test_a_client_that_retries_comes_back_when_it_is_told(stage: SetUp) -> None:
    """By its own backoff that would be in ten minutes. The server knows a second attempt by its metadata."""
    policy: dict[str, object] = {"maxAttempts": 2, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}
    policy |= {"initialBackoff": "600s", "maxBackoff": "600s", "backoffMultiplier": 1}
    config = {"grpc.service_config": json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": policy}]})}
    attempt = {"partition": by_metadata("grpc-previous-rpc-attempts")}
    law, again = Recording(1), lambda operation, attempts: attempts == "1"
    with stage(law, bypass=again, interceptor=attempt) as scene, scene.client(**config) as client:
        assert client.call("unary_unary", "that one may know how long a call takes").code is OK
        scene.rest()
        with scene.held(client):
            assert client.call("unary_unary", "a").answers() == ["a"]
            assert (scene.statistics.refused, scene.statistics.bypassed) == ({"limit": 1}, 1)


def test_a_limiter_that_is_closed_makes_its_server_unavailable(stage: SetUp) -> None:
    with stage(Recording(1)) as scene, scene.client() as client:
        scene.close_limiter()
        assert client.call("unary_unary", "a").code is grpc.StatusCode.UNAVAILABLE


def test_a_partition_by_metadata(stage: SetUp) -> None:
    gold, other = (("tenant", "gold"),), (("tenant", "other"),)
    shares, names = Partitions({"gold": 0.5}, strict=True), {"partition": by_metadata("Tenant")}
    # Time stands still: who asked for its share a second ago would have lent it.
    with stage(Recording(2), partitions=shares, interceptor=names, clock=lambda: 0) as scene, scene.client() as client:
        assert client.call("unary_unary", "a", metadata=gold).code is OK
        scene.rest()
        with scene.held(client):
            assert client.call("unary_unary", "a", metadata=other).told["batchlimit-reason"] == "partition"
            assert client.call("unary_unary", "a", metadata=gold).code is OK


def test_a_partition_is_not_named_by_bytes() -> None:
    with pytest.raises(ValueError, match="'trace-bin'"):
        by_metadata("trace-bin")


@pytest.mark.parametrize("name", ["partition", "priority", "sheddable", "outcome"])
def test_a_function_that_fails_is_told_and_refuses_nobody(stage: SetUp, name: str, caplog: Any) -> None:
    """As before web applications."""
    with stage(Recording(9), interceptor={name: int}) as scene, scene.client() as client:
        assert client.call("unary_unary", "a").code is OK
        assert client.call("unary_unary", "abort NOT_FOUND").code is grpc.StatusCode.NOT_FOUND
        assert (scene.counted, scene.statistics.abandoned) == ((1, 0, 1), 0)
    assert f"`{name}` failed: int() argument" in caplog.text


def test_a_handler_that_goes_on_by_a_callback_keeps_no_worker() -> None:
    def watch(request: bytes, context: Any, send: Callable[[bytes], None]) -> None:
        send(b"serving")

    watch.experimental_non_blocking = True  # type: ignore[attr-defined]  # as Watch of grpcio-health-checking
    methods: dict[str, Any] = {
        "Watch": grpc.unary_stream_rpc_method_handler(watch),
        "Check": grpc.unary_unary_rpc_method_handler(lambda request, context: b"well"),
    }
    limiter = ConcurrencyLimiter(Recording(9))
    rules = faces.RateLimitInterceptor("memory://", [Rule("all", "1000/s", key="all")])
    handler = grpc.method_handlers_generic_handler("Health", methods)
    with server(False, handler, faces.ConcurrencyInterceptor(limiter), rules, workers=1) as address:
        with grpc.insecure_channel(address) as channel:
            watch_it: Any = channel.unary_stream("/Health/Watch")
            watches = [watch_it(b"") for _ in range(3)]
            assert [next(each) for each in watches] == [b"serving"] * 3
            check: Any = channel.unary_unary("/Health/Check")
            assert check(b"", timeout=60) == b"well"
            until(lambda: limiter.statistics().in_flight == 3)
        until(lambda: limiter.statistics().in_flight == 0)
    limiter.close()


def test_a_plain_function_is_no_handler_on_asyncio() -> None:
    handler: Any = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
    limiter = AsyncConcurrencyLimiter(Recording(1))

    async def found(details: object) -> object:
        return handler

    call = SimpleNamespace(method="/test.Echo/plain", invocation_metadata=())
    with pytest.raises(TypeError, match="must be a coroutine"):
        awaited(faces.AsyncConcurrencyInterceptor(limiter).intercept_service, found, call)
    assert limiter.statistics().in_flight == 0


@pytest.mark.parametrize("kind", ["stream_unary", "unary_unary"])
def test_a_refusal_waits_for_no_request(stage: SetUp, kind: str) -> None:
    """Nor does that depend on what kind of method was called."""
    with stage(Recording(1)) as scene, scene.client() as client, scene.held(client):
        never = iter(lambda: scene.gate.stop() or "a", "")
        assert client.call("stream_unary", to=kind, later=never).code is EXHAUSTED


def test_an_interceptor_behind_that_fails_holds_nothing(stage: SetUp) -> None:
    call = SimpleNamespace(method="/test.Echo/unary_unary", invocation_metadata=())
    with stage(Recording(1)) as scene:
        with pytest.raises(LookupError):
            scene.intercept(_failing, call)
        assert scene.counted == (0, 0, 1)


def _failing(details: object) -> NoReturn:
    raise LookupError


@pytest.fixture
def api(asynchronous: bool) -> Any:
    names = "limiter", "keyed", "intercept", "service"
    made = dict(zip(names, APIS[asynchronous], strict=False))
    by_method = faces.AsyncByMethod if asynchronous else faces.ByMethod
    return SimpleNamespace(asynchronous=asynchronous, by_method=by_method, **made)


@contextmanager
def by_method_client(api: Any, interceptors: dict[str, Any], gate: Gate) -> Iterator[Client]:
    serving = server(api.asynchronous, api.service(gate), api.by_method(interceptors))
    with serving as address, grpc.insecure_channel(address) as channel:
        try:
            yield Client(channel)
        finally:
            gate.open()


@pytest.mark.parametrize("kind", KINDS)
def test_each_method_has_the_limit_of_its_first_entry(api: Any, kind: str) -> None:
    gate, one, many = Gate(), api.limiter(Fixed(1)), api.limiter(Fixed(2))
    limits = {"*": many, "/test.Pay/*": one, "/test.Health/*": None}
    with by_method_client(api, limits, gate) as calls:
        held = [calls.call(kind, "hold", service=each) for each in ("test.Pay", "test.Other", "test.Other")]
        gate.meet(3)
        codes = [calls.call(kind, "a", service=each).code for each in ("test.Pay", "test.Other", "test.Health")]
        refused = grpc.StatusCode.RESOURCE_EXHAUSTED
        assert codes == [refused, refused, grpc.StatusCode.OK]
        assert (one.statistics().in_flight, many.statistics().in_flight) == (1, 2)
        gate.open()
        assert [each.code for each in held] == [grpc.StatusCode.OK] * 3


def test_a_method_that_no_entry_names_passes(api: Any) -> None:
    limiter = api.limiter(Fixed(1))
    with by_method_client(api, {"/test.Pay/unary_unary": limiter}, Gate()) as calls:
        assert [calls.call("unary_unary", "a", service=each).answers() for each in ("test.Echo", "test.Pay")] == [
            ["a"]
        ] * 2
        assert limiter.statistics().admitted == 1


def test_a_method_may_have_limits_by_key_and_another_one_a_limit_for_all(api: Any) -> None:
    gate = Gate()
    packs = api.intercept(api.keyed({"*": 1}), key=by_metadata("repo"))
    with by_method_client(api, {"/git.Packs/*": packs, "*": api.limiter(Fixed(5))}, gate) as calls:
        held = calls.call("unary_unary", "hold", service="git.Packs", metadata=[("repo", "a")])
        gate.meet()
        seen = [
            calls.call("unary_unary", "a", service=service, metadata=[("repo", repo)]).code
            for service, repo in (("git.Packs", "a"), ("git.Packs", "b"), ("git.Refs", "a"))
        ]
        assert seen == [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.OK, grpc.StatusCode.OK]
        gate.open()
        assert held.code is grpc.StatusCode.OK


def test_names_of_clients_fill_no_memory(api: Any) -> None:
    interceptor = api.by_method({"/a/*": None, "*": api.limiter(Fixed(5))})
    for number in range(_MOST + 100):
        assert interceptor._of(f"/b/{number}") is not None
        assert interceptor._of(f"/a/{number}") == (None,)
    assert interceptor._of.cache_info().currsize == _MOST


@pytest.mark.parametrize("given", [{}, None, [1]])
def test_entries_come_as_a_dict(api: Any, given: Any) -> None:
    with pytest.raises(TypeError, match="interceptors must be like"):
        api.by_method(given)


def test_an_entry_is_a_limiter_or_an_interceptor(api: Any) -> None:
    with pytest.raises(TypeError, match=r"'/a/\*' needs a \w+, an interceptor, or None"):
        api.by_method({"/a/*": api.keyed({"*": 1})})


def test_refusals_that_say_the_same_are_made_once(api: Any) -> None:
    law, call = Settable(2), SimpleNamespace(method="/test.Echo/unary_unary", invocation_metadata=())
    limiter = api.limiter(law)
    refuse = partial(awaited, api.intercept(limiter).intercept_service, _failing, call)
    held = [awaited(limiter.acquire) for _ in range(2)]
    first, second = refuse(), refuse()
    law.set_limit(1)
    assert second is first is not refuse()
    for each in held:
        each.success()


@pytest.mark.parametrize("milliseconds", [0, 29, 1001])
def test_a_refusal_tells_when_to_come_back_to_the_millisecond(milliseconds: int) -> None:
    told = refused_by_limiter(ConcurrencyLimited("limit", milliseconds / 1000 - 1e-7, 1, 1))
    assert told.metadata[1:] == ((PUSHBACK, str(milliseconds)),)
    assert told.details.endswith(f"; retry after {milliseconds / 1000:.3f} s")
