"""How long a gRPC call holds its permit: never lost, never doubled, whoever ends it and when."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from threading import Event
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimiter, Queue
from batchlimit.concurrency import Outcome, Shedding
from batchlimit.concurrency.laws import Gitaly, Settable
from batchlimit.integrations.grpc import (
    AsyncConcurrencyInterceptor,
    AsyncRateLimitInterceptor,
    check_permit,
    outcome_of,
)
from batchlimit.integrations.grpc.serving import CallEnd, completing, served_async
from batchlimit.rules import Rule
from tests.apis.keyed import Told
from tests.awaiting import awaited
from tests.integrations.gate import Gate
from tests.integrations.service import KINDS, SERVED, AsyncService
from tests.integrations.stage import Call, Client, SetUp, Stage, on_asyncio, server, threaded
from tests.recording import Recording
from tests.sync.stage import DEADLINE, until

OK, EXHAUSTED, CANCELLED = grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED
ENDINGS = {
    OK,
    EXHAUSTED,
    *(grpc.StatusCode[name] for name in ("NOT_FOUND", "UNKNOWN", "UNAVAILABLE", "DEADLINE_EXCEEDED")),
}
"""How a call may end that its client waits for, of those that a crowd makes."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("serving", [threaded, on_asyncio], ids=["threads", "asyncio"])
def test_a_cancelled_call_holds_its_permit_while_a_worker_is_busy_and_in_a_task_not(serving: SetUp, kind: str) -> None:
    """The handler of a task is never let through the gate."""
    with serving(Recording(1)) as scene, scene.client() as client:
        call = client.call(kind, "hold")
        scene.gate.meet()
        call.cancel()
        if serving is threaded:
            assert client.call(kind, "a").code is EXHAUSTED
            scene.gate.open()
        assert scene.counted == (0, 0, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_leaves_before_a_worker_is_free_loses_no_permit(kind: str) -> None:
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


def test_a_call_whose_time_is_over_before_a_worker_is_free_is_a_drop() -> None:
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


def test_calls_that_wait_in_the_queue_are_let_in_in_turn() -> None:
    with on_asyncio(Recording(1), queue=Queue(2, max_wait=None)) as scene, scene.client() as client:
        calls = [client.call("unary_unary", "hold") for _ in range(3)]
        until(lambda: scene.statistics.waiting == 2)
        refused = client.call("unary_unary", "a")
        assert (refused.code, refused.told["batchlimit-reason"]) == (EXHAUSTED, "queue_full")
        scene.gate.open()
        assert [call.answers() for call in calls] == [["hold"]] * 3


async def test_a_call_whose_client_leaves_before_its_last_request_is_no_success() -> None:
    """On asyncio the handler sees its requests end, and only after that the call is cancelled."""
    told: list[Any] = []

    async def handle(requests: object, context: object) -> None: ...

    run = served_async(grpc.stream_unary_rpc_method_handler(handle))
    call: Any = asyncio.ensure_future(run(None, Context(None), lambda *ended: told.append(ended)))  # type: ignore[arg-type]
    asyncio.get_running_loop().call_soon(call.cancel)
    with pytest.raises(asyncio.CancelledError):
        await call
    assert [each[0] for each in told] == [CANCELLED]


class Tasks(grpc.aio.ServerInterceptor):
    """Serves a call in a task of its own."""

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        found = await continuation(handler_call_details)

        async def stream(requests: Any, context: Any) -> None:
            await asyncio.create_task(found.stream_stream(requests, context))

        return grpc.stream_stream_rpc_method_handler(stream, found.request_deserializer, found.response_serializer)


class Iterating(grpc.aio.ServerInterceptor):
    """Iterates what a stream answers, as that of OpenTelemetry does before it hands it on."""

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        found = await continuation(handler_call_details)

        async def stream(requests: Any, context: Any) -> AsyncIterator[Any]:
            async for response in found.stream_stream(requests, context):
                yield response

        return grpc.stream_stream_rpc_method_handler(stream, found.request_deserializer, found.response_serializer)


@pytest.mark.parametrize("another", [Iterating, Tasks])
@pytest.mark.parametrize("kind", ["unary_stream", "stream_stream"])
def test_another_interceptor_may_iterate_a_stream_of_asyncio_or_run_it_as_a_task(kind: str, another: Any) -> None:
    limiter, gate = AsyncConcurrencyLimiter(Recording(3)), Gate()
    charged = Rule("charged", "9/hour", key="charged", charge=[499])
    limits = AsyncConcurrencyInterceptor(limiter), AsyncRateLimitInterceptor("memory://", [charged])
    with server(True, AsyncService(gate), another(), *limits) as address, grpc.insecure_channel(address) as channel:
        client = Client(channel)
        assert client.call(kind, "a", "b").answers() == SERVED[kind]
        assert client.call(kind, "abort UNAVAILABLE").code is grpc.StatusCode.UNAVAILABLE
        left = client.call(kind, "hold")
        gate.meet()
        left.cancel()
        until(lambda: limiter.statistics().in_flight == 0)
        seen = limiter.statistics()
        assert (seen.succeeded, seen.dropped, seen.ignored, seen.abandoned) == (1, 1, 1, 0)


def test_a_call_that_leaves_while_it_waits_is_out_of_the_queue() -> None:
    with on_asyncio(Recording(1), queue=Queue(1, max_wait=None)) as scene, scene.client() as client:
        with scene.held(client):
            waiting = client.call("unary_unary", "a")
            until(lambda: scene.statistics.waiting == 1)
            waiting.cancel()
            until(lambda: scene.statistics.waiting == 0)
        assert scene.counted == (1, 0, 0)


def test_nobody_waits_on_a_threaded_server() -> None:
    """The thread that takes in the calls is never held up."""
    queued = threaded(Recording(1), queue=Queue(9, max_wait=None))
    with queued as scene, scene.client() as client, scene.held(client):
        assert client.call("unary_unary", "a").told["batchlimit-reason"] == "limit"


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


# What a limiter learns from the way in which a call ended
SUCCESS, DROPPED, IGNORED = (1, 0, 0), (0, 1, 0), (0, 0, 1)

STATUSES = [
    ("NOT_FOUND", IGNORED),
    ("INVALID_ARGUMENT", IGNORED),
    ("INTERNAL", IGNORED),
    ("CANCELLED", IGNORED),
    ("UNAVAILABLE", DROPPED),
    ("DEADLINE_EXCEEDED", DROPPED),
    ("RESOURCE_EXHAUSTED", DROPPED),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("code", "outcome"), STATUSES)
def test_the_status_decides(stage: SetUp, kind: str, code: str, outcome: tuple[int, int, int]) -> None:
    """Be it that the handler aborts, or that it just sets a status."""
    with stage(Recording(1)) as scene, scene.client() as client:
        for number, told in enumerate((f"abort {code}", f"status {code}"), 1):
            assert client.call(kind, told).code is grpc.StatusCode[code]
            assert scene.counted == tuple(number * count for count in outcome)


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_failed_further_down_counts_as_what_it_failed_with(stage: SetUp, kind: str) -> None:
    with stage(Recording(1)) as scene, scene.client() as client:
        assert client.call(kind, "below UNAVAILABLE").code is grpc.StatusCode.UNKNOWN
        scene.rest()
        assert client.call(kind, "below NOT_FOUND").code is grpc.StatusCode.UNKNOWN
        assert scene.counted == (0, 1, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_deadline_that_passes_is_a_drop(stage: SetUp, kind: str) -> None:
    """Where the machine stalls the call may come too late for that, or never; the next one does not."""

    def is_dropped() -> bool:
        with stage(Recording(1)) as scene, scene.client() as client:
            assert client.call(kind, "hold", timeout=0.25).code is grpc.StatusCode.DEADLINE_EXCEEDED
            scene.gate.open()
            assert scene.counted in (DROPPED, IGNORED, (0, 0, 0))
            return bool(scene.statistics.dropped)

    until(is_dropped)


def test_an_own_mapping(stage: SetUp) -> None:
    def mapping(code: grpc.StatusCode) -> Outcome:
        return Outcome.DROPPED if code is grpc.StatusCode.NOT_FOUND else outcome_of(code)

    with stage(Recording(9), interceptor={"outcome": mapping}) as scene, scene.client() as client:
        assert client.call("unary_unary", "abort NOT_FOUND").code is grpc.StatusCode.NOT_FOUND
        assert client.call("unary_unary", "abort INTERNAL").code is grpc.StatusCode.INTERNAL
        assert client.call("unary_unary", "a").code is grpc.StatusCode.OK
        assert scene.counted == (1, 1, 1)


class Context:
    """Says what it was told to, of a call that had so many seconds."""

    def __init__(self, given: float | None) -> None:
        self.left = given
        self.told: object = None

    def code(self) -> object:
        return self.told

    def time_remaining(self) -> float | None:
        return self.left


LEAVES = asyncio.CancelledError()


@pytest.mark.parametrize(
    ("given", "left", "code", "error", "gone", "counted"),
    [
        (1.24, 0.0, None, LEAVES, True, DROPPED),
        (1.24, 0.012, None, LEAVES, True, DROPPED),  # the client gave it 1.231 s, and that is sent as 1240 ms
        (0.1, 0.004, None, LEAVES, True, DROPPED),  # the request travelled for so long
        (1.24, 0.2, None, LEAVES, True, IGNORED),
        (0.1, 0.05, None, LEAVES, True, IGNORED),
        (None, None, None, LEAVES, True, IGNORED),
        (9.2e18, 9.2e18, None, LEAVES, True, IGNORED),  # as a threaded server says that there is none
        (None, None, None, None, False, SUCCESS),
        (None, None, OK, None, False, SUCCESS),
        (None, None, grpc.StatusCode.UNAVAILABLE, ValueError(), False, DROPPED),
        (None, None, grpc.StatusCode.UNAVAILABLE, None, True, DROPPED),
        (None, None, 14, None, False, DROPPED),  # by its number
        (None, None, None, TimeoutError(), False, DROPPED),
        (None, None, None, TimeoutError(), True, IGNORED),
        (None, None, None, grpc.RpcError(), False, IGNORED),
    ],
)
def test_a_status_goes_before_an_error_and_who_leaves_at_its_deadline_had_no_time(
    given: Any, left: Any, code: object, error: BaseException | None, gone: bool, counted: Any
) -> None:
    limiter, context = ConcurrencyLimiter(Recording(1)), Context(given)
    end = CallEnd(context, completing(limiter.acquire(), outcome_of))
    context.left, context.told = left, code
    end.tell(error, gone=gone)
    counts = limiter.statistics()
    assert (counts.in_flight, (counts.succeeded, counts.dropped, counts.ignored)) == (0, counted)


SHEDDABLE: dict[str, Any] = {"sheddable": lambda details: dict(details.invocation_metadata).get("sheddable") == "yes"}


@contextmanager
def given_up(serving: SetUp, law: Any, kind: str, text: str, **options: Any) -> Iterator[Stage]:
    """Of two calls that are under way the sheddable one is given up in this block, and told so; the other one stays."""
    with serving(law, interceptor=SHEDDABLE, every=0.001, **options) as scene, scene.client() as client:
        stays = client.call(kind, text)
        scene.gate.meet()
        goes = client.call(kind, text, metadata=[("sheddable", "yes")])
        scene.gate.meet()
        yield scene
        assert (goes.code, goes.told["batchlimit-reason"]) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "shed")
        scene.gate.open()
        assert stays.code is grpc.StatusCode.OK
        assert scene.counted == (1, 0, 1)
        assert scene.statistics.shed == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_of_a_task_is_given_up_and_what_is_not_sheddable_stays(kind: str) -> None:
    watcher, law = Told(), Gitaly(initial=10, minimum=1, maximum=20)
    with given_up(on_asyncio, law, kind, "hold", watchers=[watcher], shedding=Shedding(after=1, share=0.1)):
        watcher.event = "memory"


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_of_a_thread_is_given_up_where_it_checks(kind: str) -> None:
    """The handler works, and checks now and then; what is not sheddable stays, though it checks as well."""
    law = Settable(2)
    with given_up(threaded, law, kind, "work", shedding=Shedding(over=2, share=1)):
        law.set_limit(1)


def test_a_stream_of_a_thread_is_given_up_at_its_next_response() -> None:
    law = Settable(1)
    with (
        threaded(law, interceptor=SHEDDABLE, every=0.001, shedding=Shedding(over=1)) as scene,
        scene.client() as client,
    ):
        held = scene.limiter.acquire()
        law.set_limit(2)
        flood = client.call("unary_stream", "flood", metadata=[("sheddable", "yes")])
        assert flood.first() == "first"
        law.set_limit(1)
        assert (flood.code, flood.told["batchlimit-reason"]) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "shed")
        held.success()
        assert scene.counted == (1, 0, 1)


def test_a_stream_of_requests_is_given_up_at_the_next_one() -> None:
    law = Settable(1)
    told = Event()

    def requests() -> Iterator[str]:
        told.wait(DEADLINE)
        yield "more"

    with (
        threaded(law, interceptor=SHEDDABLE, every=0.001, shedding=Shedding(over=1)) as scene,
        scene.client() as client,
    ):
        held = scene.limiter.acquire()
        law.set_limit(2)
        call = client.call("stream_unary", "a", later=requests(), metadata=[("sheddable", "yes")])
        until(lambda: scene.statistics.in_flight == 2)
        law.set_limit(1)
        until(lambda: scene.statistics.shed == 1)
        told.set()
        assert (call.code, call.told["batchlimit-reason"]) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "shed")
        held.success()
        assert scene.counted == (1, 0, 1)


def test_nobody_is_told_to_give_up_outside_of_a_call() -> None:
    check_permit()
