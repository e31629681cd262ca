"""How long a gRPC call holds its permit: never lost, never doubled, whoever ends it and when."""

import random
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from batchlimit import AsyncConcurrencyLimiter, Queue
from batchlimit.integrations.grpc import AsyncConcurrencyInterceptor
from tests.awaiting import awaited
from tests.integrations.service import KINDS
from tests.integrations.stage import Call, Recording, SetUp, on_asyncio, threaded
from tests.sync.stage import until

OK, EXHAUSTED, CANCELLED = grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED
ENDINGS = {
    OK,
    EXHAUSTED,
    *(grpc.StatusCode[name] for name in ("NOT_FOUND", "UNKNOWN", "UNAVAILABLE", "DEADLINE_EXCEEDED")),
}
"""How a call may end that its client waits for, of those that a crowd makes."""


def test_a_stream_holds_its_permit_to_its_end(stage: SetUp) -> None:
    with stage(Recording(1)) as scene, scene.client() as client:
        stream = client.call("unary_stream", "hold")
        assert stream.first() == "first"
        assert client.call("unary_unary", "a").code is EXHAUSTED
        scene.gate.open()
        assert stream.answers() == ["hold"]
        until(lambda: scene.statistics.in_flight == 0)
        assert client.call("unary_unary", "a").code is OK


def test_a_client_that_leaves_a_stream_between_two_responses_ends_it(stage: SetUp) -> None:
    """No handler runs then that could notice."""
    with stage(Recording(1)) as scene, scene.client() as client:
        stream = client.call("unary_stream", "flood")
        assert stream.first() == "first"
        stream.cancel()
        assert scene.counted == (0, 0, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_call_holds_its_permit_while_a_worker_is_busy_with_it(kind: str) -> None:
    with threaded(Recording(1)) as scene, scene.client() as client:
        call = client.call(kind, "hold")
        scene.gate.meet()
        call.cancel()
        assert client.call(kind, "a").code is EXHAUSTED
        scene.gate.open()
        assert scene.counted == (0, 0, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_task_gives_up_its_permit(kind: str) -> None:
    """Its handler is never let through the gate."""
    with on_asyncio(Recording(1)) as scene, scene.client() as client:
        call = client.call(kind, "hold")
        scene.gate.meet()
        call.cancel()
        assert scene.counted == (0, 0, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_who_leaves_before_a_worker_is_free_loses_no_permit(kind: str) -> None:
    """grpcio does not run the handler of such a call."""
    with threaded(Recording(2), workers=1) as scene, scene.client() as client:
        busy = client.call("unary_unary", "hold")
        scene.gate.meet()
        call = client.call(kind, "a")
        until(lambda: scene.statistics.in_flight == 2)
        call.cancel()
        with scene.client() as other:
            assert other.call("unary_unary", "a").code is EXHAUSTED
        scene.gate.open()
        assert busy.answers() == ["hold"]
        assert scene.counted == (1, 0, 1)


def test_whose_time_is_over_before_a_worker_is_free_is_a_drop() -> None:
    """Where the machine stalls the call may come too late for that, or never; the next one does not."""

    def is_dropped() -> bool:
        with threaded(Recording(2), workers=1) as scene, scene.client() as client:
            busy = client.call("unary_unary", "hold")
            scene.gate.meet()
            assert client.call("unary_unary", "a", timeout=0.25).code is grpc.StatusCode.DEADLINE_EXCEEDED
            scene.gate.open()
            assert busy.answers() == ["hold"]
            succeeded, dropped, ignored = scene.counted
            assert (succeeded, dropped + ignored) in ((1, 1), (1, 0))
            return dropped == 1

    until(is_dropped)


@pytest.mark.parametrize(
    ("calls", "codes"),
    [
        pytest.param(["unary_unary", "a", "missing"], ["UNIMPLEMENTED"], id="a method that is not there"),
        pytest.param(["unary_unary", "garbled", ""], ["INTERNAL", "UNKNOWN"], id="a request that cannot be read"),
        pytest.param(["stream_unary", None, "unary_unary"], ["UNIMPLEMENTED"], id="a unary call without a request"),
    ],
)
def test_a_call_that_reaches_no_handler_holds_nothing(stage: SetUp, calls: list[Any], codes: list[str]) -> None:
    kind, request, to = calls
    with stage(Recording(1)) as scene, scene.client() as client:
        for _ in range(2):
            assert client.call(kind, *([request] if request else []), to=to).code.name in codes
            scene.rest()
        assert scene.counted == (0, 0, 2)


def test_who_waits_in_the_queue_is_let_in_in_turn() -> None:
    with on_asyncio(Recording(1), queue=Queue(2, max_wait=None)) as scene, scene.client() as client:
        calls = [client.call("unary_unary", "hold") for _ in range(3)]
        until(lambda: scene.statistics.waiting == 2)
        refused = client.call("unary_unary", "a")
        assert (refused.code, refused.told["batchlimit-reason"]) == (EXHAUSTED, "queue_full")
        scene.gate.open()
        assert [call.answers() for call in calls] == [["hold"]] * 3


def test_who_waited_in_vain_is_told_so() -> None:
    with on_asyncio(Recording(1), queue=Queue(1, max_wait=0.02)) as scene, scene.client() as client:
        held = client.call("unary_unary", "hold")
        scene.gate.meet()
        refused = client.call("unary_unary", "a")
        assert (refused.code, refused.told["batchlimit-reason"]) == (EXHAUSTED, "queue_timeout")
        scene.gate.open()
        assert held.answers() == ["hold"]


def test_who_leaves_while_waiting_is_out_of_the_queue() -> None:
    with on_asyncio(Recording(1), queue=Queue(1, max_wait=None)) as scene, scene.client() as client:
        held = client.call("unary_unary", "hold")
        scene.gate.meet()
        waiting = client.call("unary_unary", "a")
        until(lambda: scene.statistics.waiting == 1)
        waiting.cancel()
        until(lambda: scene.statistics.waiting == 0)
        scene.gate.open()
        assert held.answers() == ["hold"]
        assert scene.counted == (1, 0, 0)


def test_nobody_waits_on_a_threaded_server() -> None:
    """The thread that takes in the calls is never held up."""
    with threaded(Recording(1), queue=Queue(9, max_wait=None)) as scene, scene.client() as client:
        held = client.call("unary_unary", "hold")
        scene.gate.meet()
        assert client.call("unary_unary", "a").told["batchlimit-reason"] == "limit"
        scene.gate.open()
        assert held.answers() == ["hold"]


def test_a_generator_is_left_before_its_permit_is() -> None:
    """What it does at the end is part of the call."""
    limiter, seen = AsyncConcurrencyLimiter(Recording(1)), []

    async def generate(request: object, context: object) -> AsyncIterator[str]:
        try:
            yield "first"
        finally:
            seen.append(limiter.statistics().in_flight)

    async def found(details: object) -> Any:
        return grpc.unary_stream_rpc_method_handler(generate)

    details: Any = SimpleNamespace(method="/test.Echo/unary_stream", invocation_metadata=())
    handler = awaited(AsyncConcurrencyInterceptor(limiter).intercept_service, found, details)
    with pytest.raises(ConnectionError):
        awaited(handler.stream_stream, None, _Broken())
    assert (seen, limiter.statistics().in_flight) == ([1], 0)


class _Broken:
    """The context of a stream whose client has disconnected."""

    def code(self) -> None: ...

    def time_remaining(self) -> None: ...

    async def read(self) -> bytes:
        return b"a"

    async def write(self, response: object) -> None:
        raise ConnectionError


@pytest.mark.parametrize("seed", range(3))
def test_calls_cancelled_at_any_moment_leave_nothing_behind(stage: SetUp, seed: int) -> None:
    """Of all kinds; some fail, some run out of time, and a flood ends no other way."""
    dice = random.Random(seed)
    with stage(Recording(8), queue=Queue(4, max_wait=0.01)) as scene, scene.client() as client:
        begun: list[Call] = []
        for _ in range(300):
            told = dice.choice(["a", "flood", "abort NOT_FOUND", "raise ValueError", "status UNAVAILABLE"])
            timeout = 0.02 if told == "flood" else dice.choice([None, None, 0.003])
            begun.append(client.call(dice.choice(KINDS), told, timeout=timeout))
            if dice.random() < 0.7:
                begun.pop(dice.randrange(len(begun))).cancel()
        assert {call.code for call in begun} <= ENDINGS
        until(
            lambda: client.call("unary_unary", "a").code is OK
        )  # others may be under way: cancelled, and just arrived
    # The server has stopped, so nothing arrives any more.
    succeeded, dropped, ignored = scene.counted
    assert len(scene.law.samples) == succeeded + dropped
    assert succeeded + dropped + ignored > 0
    assert scene.statistics.abandoned == 0
