"""Rules before the calls that real gRPC clients make: refused here, or sent later."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from batchlimit.base.steps import Steps, run
from batchlimit.integrations.grpc import RateLimitClientInterceptor
from batchlimit.integrations.grpc.client_calls import Admits, Ended
from batchlimit.rules import Rule
from tests.integrations.limited_grpc import Caller, Scene, calling, serving
from tests.integrations.service import KINDS, SERVED

EXHAUSTED, UNAVAILABLE = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE


class Asked(Admits):
    """Lets every call go, and notes how long it might wait."""

    def __init__(self, wait: bool, timeout: float | None) -> None:
        self._wait_for(wait, timeout)
        self.timeouts = list[float | None]()

    def _admission(self, details: Any, timeout: float | None) -> Steps[Ended | None]:
        assert details.method == "/test.Echo/a"
        self.timeouts.append(timeout)
        return None
        yield

    def lets(self, deadline: float | None) -> tuple[float | None, Any]:
        """How long a call with this deadline may wait, and what is sent."""
        called: Any = SimpleNamespace(method=b"/test.Echo/a", timeout=deadline, credentials="c")
        sent = run(self._call(called, lambda details: details, lambda *_: None))
        return self.timeouts[0], sent


MAIL = Rule("mail", "2/minute", key="mail", match="/test.Echo/*")


@pytest.fixture
def server() -> Iterator[Scene]:
    """A server that counts calls, and refuses none."""
    with serving(False, Rule("served", "1000/hour", key="served")) as scene:
        yield scene


def served(server: Scene) -> int:
    return server.counts("served").get("acquired", 0)


def refused(caller: Caller, kind: str = "unary_unary", text: str = "a", **options: Any) -> Any:
    """Make a call that ends by an error, and return that."""
    with pytest.raises(grpc.RpcError) as caught:
        caller.call(kind, text, **options)
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_call_never_leaves_and_looks_refused_by_the_server(
    asynchronous: bool, server: Scene, kind: str
) -> None:
    with calling(asynchronous, server.address, MAIL) as caller:
        for _ in range(2):
            assert caller.call(kind, "a", "b") == SERVED[kind]
        error = refused(caller, kind)
        assert error.code() is EXHAUSTED
        assert 30 <= int(dict(error.trailing_metadata())["retry-after"]) <= 34
        assert 29.9 < error.retry_after < 30.1
        assert served(server) == 2
        caller.limits.clock.pass_by(error.retry_after)
        assert caller.call(kind, "a", "b") == SERVED[kind]


@pytest.mark.parametrize("kind", ["unary_unary", "stream_unary"])
def test_a_future_of_a_refused_call_holds_its_error(server: Scene, kind: str) -> None:
    with calling(False, server.address, Rule("none", "0/s", key="none")) as caller:
        method = getattr(caller._channel, kind)(f"/test.Echo/{kind}", str.encode, bytes.decode)
        future = method.future("a" if kind == "unary_unary" else iter("a"))
        assert (future.code(), future.done(), future.exception()) == (EXHAUSTED, True, future)
        heard: list[object] = []
        future.add_done_callback(heard.append)
        assert heard == [future]


def test_keys_are_made_of_the_details_of_the_call(asynchronous: bool, server: Scene) -> None:
    def tenant(details: Any) -> dict[str, object]:
        return {"tenant": dict(details.metadata or ()).get("tenant")}

    rule = Rule("tenant", "1/hour", key="tenant:{tenant}")
    with calling(asynchronous, server.address, rule, identify=tenant) as caller:
        for name in ("ann", "bob"):
            caller.call("unary_unary", "a", metadata=(("tenant", name),))
        for metadata, code in [((("tenant", "ann"),), EXHAUSTED), ((), grpc.StatusCode.UNAUTHENTICATED)]:
            assert refused(caller, metadata=metadata).code() is code


def test_while_the_store_is_away_a_call_is_unavailable(asynchronous: bool, server: Scene) -> None:
    with calling(asynchronous, server.address, MAIL) as caller:
        caller.limits.store.away.add("mail")
        error = refused(caller)
        assert error.code() is UNAVAILABLE
        assert error.__cause__ is not None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("told", "left"), [("a", 5), ("abort NOT_FOUND", 4), ("abort INTERNAL", 5)])
def test_a_call_is_charged_by_its_status(asynchronous: bool, server: Scene, kind: str, told: str, left: int) -> None:
    rule = Rule("missed", "5/hour", key="missed", charge=[404])
    with calling(asynchronous, server.address, rule) as caller:
        try:
            caller.call(kind, told)
        except grpc.RpcError:
            assert told != "a"
        caller.limits.until_left("missed", left)


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_waits_is_sent_when_there_are_tokens(asynchronous: bool, server: Scene, kind: str) -> None:
    """The tokens come from a bucket in real time: 200 a second, so the test waits for no clock of its own."""
    rule = Rule("fast", "200/s burst 1", key="fast")
    with calling(asynchronous, server.address, rule, source="memory://", wait=True) as caller:
        for _ in range(5):
            assert caller.call(kind, "a", "b", timeout=100.0) == SERVED[kind]
        assert served(server) == 5


@pytest.mark.parametrize(
    ("wait", "timeout", "deadline", "waits"),
    [
        (False, None, 5.0, 0.0),
        (True, None, None, None),
        (True, None, 5.0, 5.0),
        (True, 3.0, None, 3.0),
        (True, 3.0, 5.0, 3.0),
        (True, 8.0, 5.0, 5.0),
        (True, 0.0, 5.0, 0.0),
    ],
)
def test_how_long_a_call_waits(wait: bool, timeout: float | None, deadline: float | None, waits: float | None) -> None:
    assert Asked(wait, timeout).lets(deadline)[0] == waits


def test_a_timeout_without_waiting_or_below_zero_is_an_error() -> None:
    with pytest.raises(ValueError, match="pass wait=True"):
        RateLimitClientInterceptor("memory://", [MAIL], timeout=1.0)
    with pytest.raises(ValueError, match="at least 0 s"):
        RateLimitClientInterceptor("memory://", [MAIL], wait=True, timeout=-1.0)


@pytest.mark.parametrize(("waited", "left"), [(3.0, 2.0), (5.0, 0.0), (6.0, 0.0)])
def test_a_call_that_waited_has_the_rest_of_its_time(waited: float, left: float, monkeypatch: Any) -> None:
    now = SimpleNamespace(monotonic=iter([100.0, 100.0 + waited]).__next__)
    monkeypatch.setattr("batchlimit.integrations.grpc.client_calls.time", now)
    _, sent = Asked(True, None).lets(5.0)
    assert (sent.timeout, sent.method, sent.credentials) == (left, b"/test.Echo/a", "c")


def test_a_call_that_waits_keeps_its_deadline(asynchronous: bool, server: Scene) -> None:
    with calling(asynchronous, server.address, MAIL, wait=True) as caller:
        assert refused(caller, text="hold", timeout=0.2).code() is grpc.StatusCode.DEADLINE_EXCEEDED
