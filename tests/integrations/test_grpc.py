"""Interceptors on real gRPC servers: who is let in, what those are told that are not, and how long a permit is held."""

import gc
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import grpc
import grpc.aio
import pytest

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimiter, Partitions
from batchlimit.integrations.grpc import (
    AsyncConcurrencyInterceptor,
    ConcurrencyInterceptor,
    RateLimitInterceptor,
    by_metadata,
    by_method,
)
from batchlimit.rules import Rule
from tests.awaiting import awaited
from tests.integrations.service import KINDS
from tests.integrations.stage import Recording, SetUp, on_asyncio, server, threaded
from tests.sync.stage import ARRIVAL, until

OK, EXHAUSTED = grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("kind", KINDS)
def test_who_is_let_in_is_served_as_without_a_limiter(stage: SetUp, kind: str) -> None:
    served = {
        "unary_unary": ["a"],
        "unary_stream": ["first", "a"],
        "stream_unary": ["a b"],
        "stream_stream": ["a", "b"],
    }
    law = Recording(1)
    with stage(law) as scene, scene.client() as client:
        assert client.call(kind, "a", "b").answers() == served[kind]
    assert [(sample.operation, sample.dropped) for sample in law.samples] == [(f"/test.Echo/{kind}", False)]


@pytest.mark.parametrize("kind", KINDS)
def test_who_is_refused_is_told_why_and_when_to_come_back(stage: SetUp, kind: str) -> None:
    with stage(Recording(1)) as scene, scene.client() as client:
        assert client.call("unary_unary", "that one may know how long a call takes").code is OK
        scene.rest()
        held = client.call("unary_unary", "hold")
        scene.gate.meet()
        refused = client.call(kind, "a")
        assert (refused.code, refused.told["batchlimit-reason"]) == (EXHAUSTED, "limit")
        assert int(refused.told["grpc-retry-pushback-ms"]) >= 1
        assert "1 calls are under way, the limit is 1" in refused.details
        scene.gate.open()
        assert held.answers() == ["hold"]


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
    with on_asyncio(Recording(1)) as scene, scene.client() as client:
        held = client.call("unary_unary", "hold")
        scene.gate.meet()
        gc.disable()
        try:
            assert client.call(kind, "a").code is EXHAUSTED
            assert not [each for each in gc.get_objects() if isinstance(each, grpc.aio.AbortError)]
        finally:
            gc.enable()
        scene.gate.open()
        assert held.answers() == ["hold"]


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
        held = client.call("unary_unary", "hold")
        scene.gate.meet()
        assert client.call("unary_unary", "a").answers() == ["a"]
        assert (scene.statistics.refused, scene.statistics.bypassed) == ({"limit": 1}, 1)
        scene.gate.open()
        assert held.answers() == ["hold"]


def test_where_nothing_is_known_of_when_to_come_back_nothing_is_said(stage: SetUp) -> None:
    with stage(Recording(1)) as scene, scene.client() as client:
        held = client.call("unary_unary", "hold")
        scene.gate.meet()
        assert client.call("unary_unary", "a").told == {"batchlimit-reason": "limit"}
        scene.gate.open()
        assert held.answers() == ["hold"]


def test_a_limiter_that_is_closed_makes_its_server_unavailable(stage: SetUp) -> None:
    with stage(Recording(1)) as scene, scene.client() as client:
        scene.close_limiter()
        assert client.call("unary_unary", "a").code is grpc.StatusCode.UNAVAILABLE


def test_a_partition_by_metadata(stage: SetUp) -> None:
    gold, other = (("tenant", "gold"),), (("tenant", "other"),)
    shares, names = Partitions({"gold": 0.5}, strict=True), {"partition": by_metadata("Tenant")}
    # Time stands still: who asked for its share a second ago would have lent it.
    with (
        stage(Recording(2), partitions=shares, interceptor=names, clock=lambda: 0) as scene,
        scene.client() as client,
    ):
        assert client.call("unary_unary", "a", metadata=gold).code is OK
        scene.rest()
        held = client.call("unary_unary", "hold")
        scene.gate.meet()
        assert client.call("unary_unary", "a", metadata=other).told["batchlimit-reason"] == "partition"
        assert client.call("unary_unary", "a", metadata=gold).code is OK
        scene.gate.open()
        assert held.answers() == ["hold"]


def test_a_partition_by_method(stage: SetUp) -> None:
    shares, names = Partitions({"/test.Echo/unary_unary": 0.5}), {"partition": by_method}
    with stage(Recording(2), partitions=shares, interceptor=names) as scene, scene.client() as client:
        held = client.call("unary_unary", "hold")
        scene.gate.meet()
        assert scene.statistics.partitions["/test.Echo/unary_unary"].in_flight == 1
        scene.gate.open()
        assert held.answers() == ["hold"]


def test_a_partition_is_not_named_by_bytes() -> None:
    with pytest.raises(ValueError, match="'trace-bin'"):
        by_metadata("trace-bin")


def test_health_checks_pass_by(stage: SetUp) -> None:
    def healthy(operation: str, partition: str) -> bool:
        return operation.startswith("/grpc.health.v1.Health/")

    with stage(Recording(1), bypass=healthy) as scene, scene.client() as client:
        held = client.call("unary_unary", "hold")
        scene.gate.meet()
        assert client.call("unary_unary", "a", service="grpc.health.v1.Health").code is OK
        assert client.call("unary_unary", "a").code is EXHAUSTED
        scene.gate.open()
        assert held.answers() == ["hold"]
        assert scene.statistics.bypassed == 1


def test_a_handler_that_goes_on_by_a_callback_keeps_no_worker() -> None:
    def watch(request: bytes, context: Any, send: Callable[[bytes], None]) -> None:
        send(b"serving")

    watch.experimental_non_blocking = True  # type: ignore[attr-defined]  # as Watch of grpcio-health-checking
    methods: dict[str, Any] = {
        "Watch": grpc.unary_stream_rpc_method_handler(watch),
        "Check": grpc.unary_unary_rpc_method_handler(lambda request, context: b"well"),
    }
    limiter = ConcurrencyLimiter(Recording(9))
    rules = RateLimitInterceptor("memory://", [Rule("all", "1000/s", key="all")])
    handler = grpc.method_handlers_generic_handler("Health", methods)
    with server(False, handler, ConcurrencyInterceptor(limiter), rules, workers=1) as address:
        with grpc.insecure_channel(address) as channel:
            watch_it: Any = channel.unary_stream("/Health/Watch")
            watches = [watch_it(b"") for _ in range(3)]
            assert [next(each) for each in watches] == [b"serving"] * 3
            check: Any = channel.unary_unary("/Health/Check")
            assert check(b"", timeout=ARRIVAL) == b"well"
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
        awaited(AsyncConcurrencyInterceptor(limiter).intercept_service, found, call)
    assert limiter.statistics().in_flight == 0


@pytest.mark.parametrize("kind", ["stream_unary", "unary_unary"])
def test_a_refusal_waits_for_no_request(stage: SetUp, kind: str) -> None:
    """Nor does that depend on what kind of method was called."""
    with stage(Recording(1)) as scene, scene.client() as client:
        held = client.call("unary_unary", "hold")
        scene.gate.meet()
        never = iter(lambda: scene.gate.stop() or "a", "")
        assert client.call("stream_unary", to=kind, later=never).code is EXHAUSTED
        scene.gate.open()
        assert held.answers() == ["hold"]


def test_an_interceptor_behind_that_fails_holds_nothing(stage: SetUp) -> None:
    call = SimpleNamespace(method="/test.Echo/unary_unary", invocation_metadata=())
    with stage(Recording(1)) as scene:
        with pytest.raises(LookupError):
            scene.intercept(_failing, call)
        assert scene.counted == (0, 0, 1)


def _failing(details: object) -> NoReturn:
    raise LookupError
