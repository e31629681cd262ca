"""Clients of both APIs that have as many calls under way at once as a limiter lets."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any, NoReturn

import grpc
import grpc.aio
import pytest

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimited, ConcurrencyLimiter, Queue
from batchlimit.concurrency import Keyed, KeyedConcurrencyLimiter, Outcome
from batchlimit.integrations import grpc as faces
from batchlimit.integrations.grpc import by_method
from batchlimit.laws import Fixed
from batchlimit.rules import Rule
from tests.awaiting import awaited
from tests.integrations.gate import Gate
from tests.integrations.limited_grpc import Limits
from tests.integrations.service import KINDS, Service
from tests.integrations.stage import Client, server
from tests.recording import Recording
from tests.sync.stage import until


class Scene:
    """A threaded server without a limit."""

    def __init__(self, gate: Gate, address: str) -> None:
        self.gate, self.address = gate, address

    @contextmanager
    def client(self, limiter: Any, *behind: Any, **options: Any) -> Iterator[Client]:
        limits = faces.ConcurrencyClientInterceptor(limiter, **options)
        with limiter, grpc.insecure_channel(self.address) as channel:
            yield Client(grpc.intercept_channel(channel, limits, *behind))

    @asynccontextmanager
    async def channel(self, limiter: Any, **options: Any) -> AsyncIterator[grpc.aio.Channel]:
        limits = faces.AsyncConcurrencyClient(limiter, **options)
        async with limiter, grpc.aio.insecure_channel(self.address, interceptors=limits.interceptors) as channel:
            yield channel


@pytest.fixture
def scene() -> Iterator[Scene]:
    gate = Gate()
    with server(False, Service(gate)) as address:
        yield Scene(gate, address)
        gate.open()


def resting(limiter: Any) -> tuple[int, int, int]:
    """Return what was counted, once no call is under way."""
    until(lambda: limiter.statistics().in_flight == 0)
    seen = limiter.statistics()
    return seen.succeeded, seen.dropped, seen.ignored


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_above_the_limit_never_leaves_the_process(scene: Scene, kind: str) -> None:
    limiter = ConcurrencyLimiter(Fixed(1))
    with scene.client(limiter) as client:
        held = client.call(kind, "hold")
        scene.gate.meet()
        refused = client.call(kind, "a")
        with pytest.raises(faces.RefusedCall) as error:
            refused.answers()
        assert (error.value.code(), refused.told["batchlimit-reason"]) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "limit")
        assert isinstance(error.value.__cause__, ConcurrencyLimited)
        scene.gate.open()
        assert held.code is grpc.StatusCode.OK
        assert resting(limiter) == (1, 0, 0)


@pytest.mark.parametrize(
    ("request_", "counted"), [("a", (1, 0, 0)), ("abort UNAVAILABLE", (0, 1, 0)), ("abort NOT_FOUND", (0, 0, 1))]
)
@pytest.mark.parametrize("kind", KINDS)
def test_the_status_of_a_call_tells_the_law(scene: Scene, kind: str, request_: str, counted: tuple[int, ...]) -> None:
    limiter = ConcurrencyLimiter(Fixed(1))
    with scene.client(limiter) as client:
        assert client.call(kind, request_).code is not None
        assert resting(limiter) == counted


@pytest.mark.parametrize("requests", [["hold"], ["a", "hold"]], ids=["unary_stream", "stream_stream"])
@pytest.mark.parametrize("cancels", [True, False], ids=["cancelled", "dropped"])
def test_a_stream_that_its_reader_leaves_gives_its_place_back(scene: Scene, requests: list[str], cancels: bool) -> None:
    """grpcio cancels one that nobody holds any more."""
    limiter = ConcurrencyLimiter(Fixed(1))
    with scene.client(limiter) as client:
        call = client.call("stream_stream" if requests[1:] else "unary_stream", *requests)
        assert call.first() in ("first", "a")
        if cancels:
            call.cancel()
        del call
        assert resting(limiter) == (0, 0, 1)


class Traced(grpc.UnaryStreamClientInterceptor):
    """Answers with a generator and no call, as that of OpenTelemetry."""

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        yield from continuation(client_call_details, request)


class Wrapping(grpc.UnaryStreamClientInterceptor):
    """Answers with a call that is an iterator and no future, which is all that grpcio asks for."""

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        class Wrapped:
            def __init__(self, call: Any) -> None:
                for name in ("initial_metadata", "trailing_metadata", "code", "details", "add_callback", "__next__"):
                    setattr(self, name, getattr(call, name))

            def __iter__(self) -> Any:
                return iter(self.__next__, None)  # type: ignore[attr-defined]

        return Wrapped(continuation(client_call_details, request))


def test_a_stream_of_an_interceptor_that_returns_no_future_is_read_and_counted(scene: Scene) -> None:
    limiter = ConcurrencyLimiter(Fixed(1))
    with scene.client(limiter, Wrapping()) as client:
        assert client.call("unary_stream", "a").answers() == ["first", "a"]
        assert resting(limiter) == (1, 0, 0)


def test_a_stream_of_an_interceptor_that_returns_no_call_is_read_and_counted(scene: Scene) -> None:
    limiter = ConcurrencyLimiter(Fixed(1))
    with scene.client(limiter, Traced()) as client:
        assert client.call("unary_stream", "a").answers() == ["first", "a"]
        assert client.call("unary_stream", "hold").first() == "first"
        with pytest.raises(grpc.RpcError):
            client.call("unary_stream", "abort UNAVAILABLE").answers()
        client.call("unary_stream", "a")  # nobody reads it
        assert resting(limiter) == (1, 1, 2)


def test_a_call_that_waits_is_made_when_there_is_room(scene: Scene) -> None:
    law = Recording(1)
    limiter = ConcurrencyLimiter(law, queue=Queue(1, max_wait=None))
    with scene.client(limiter, wait=True) as client, ThreadPoolExecutor(1) as pool:
        held = limiter.acquire()
        waiting = pool.submit(lambda: client.call("unary_unary", "a", timeout=60).answers())
        until(lambda: limiter.statistics().waiting == 1)
        held.success()
        assert waiting.result() == ["a"]
        assert resting(limiter) == (2, 0, 0)
        assert [sample.operation for sample in law.samples] == ["", "/test.Echo/unary_unary"]


def test_a_call_waits_no_longer_than_it_may(scene: Scene) -> None:
    limiter = KeyedConcurrencyLimiter({"*": Keyed(1, queue=Queue(1, max_wait=None))})
    with scene.client(limiter, key=by_method, wait=True, timeout=0.001) as client:
        held = limiter.acquire("/test.Echo/unary_unary")
        assert client.call("unary_unary", "a").told["batchlimit-reason"] == "queue_timeout"
        held.success()


async def test_a_client_on_asyncio_has_the_same_limit(scene: Scene) -> None:
    limiter = AsyncConcurrencyLimiter(Fixed(1))
    async with scene.channel(limiter, priority=lambda details: len(details.method)) as channel:
        unary = channel.unary_unary("/test.Echo/unary_unary", str.encode, bytes.decode)
        stream = channel.unary_stream("/test.Echo/unary_stream", str.encode, bytes.decode)
        held = stream("hold")
        assert await held.read() == "first"
        with pytest.raises(faces.AsyncRefusedCall) as refused:
            await unary("a")
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert isinstance(refused.value.__cause__, ConcurrencyLimited)
        scene.gate.open()
        assert [each async for each in held] == ["hold"]
        await _at_rest(limiter)
        assert await unary("b") == "b"
        with pytest.raises(grpc.aio.AioRpcError):
            await unary("abort UNAVAILABLE")
        await _at_rest(limiter)
        seen = limiter.statistics()
        assert (seen.succeeded, seen.dropped, seen.ignored, seen.refused) == (2, 1, 0, {"limit": 1})


async def _at_rest(limiter: AsyncConcurrencyLimiter) -> None:
    await asyncio.to_thread(until, lambda: limiter.statistics().in_flight == 0)


async def test_a_call_on_asyncio_waits_if_it_is_to(scene: Scene) -> None:
    limiter = AsyncConcurrencyLimiter(Fixed(1), queue=Queue(1, max_wait=None))
    async with scene.channel(limiter, wait=True) as channel:
        held = await limiter.acquire()
        unary = channel.unary_unary("/test.Echo/unary_unary", str.encode, bytes.decode)
        call = unary("a", timeout=60)
        await asyncio.to_thread(until, lambda: limiter.statistics().waiting == 1)
        held.success()
        assert await call == "a"
        await _at_rest(limiter)


def test_a_timeout_without_a_wait_is_told() -> None:
    with ConcurrencyLimiter(Fixed(1)) as limiter, pytest.raises(ValueError, match="pass wait=True"):
        faces.ConcurrencyClientInterceptor(limiter, timeout=1.0)


# Calls that were admitted and could not be made: nothing of them stays behind
DETAILS: Any = SimpleNamespace(method="/test.Echo/unary_unary", timeout=None, metadata=())
MISSED = Rule("missed", "5/hour", key="missed", charge=[404])


class Interrupted(BaseException):
    """As an interrupt that meets a thread, or a cancellation that meets a task."""


def interrupted(details: object, request: object) -> NoReturn:
    raise Interrupted


async def interrupted_async(details: object, request: object) -> NoReturn:
    raise Interrupted


def dropped(code: object) -> Outcome:
    return Outcome.DROPPED


def could_not_be_made(asynchronous: bool, client: Any) -> None:
    """Let a client make a call that is interrupted."""

    async def intercepted() -> None:
        await client.interceptors[0].intercept_unary_unary(interrupted_async, DETAILS, "a")

    with pytest.raises(Interrupted):
        awaited(intercepted) if asynchronous else client.intercept_unary_unary(interrupted, DETAILS, "a")


def test_a_call_that_could_not_be_made_is_charged_as_a_failed_one(asynchronous: bool) -> None:
    limits = Limits(asynchronous, [MISSED])
    kind: Any = faces.AsyncRateLimitClient if asynchronous else faces.RateLimitClientInterceptor
    could_not_be_made(asynchronous, client := kind(limits.limiter, [MISSED]))
    if asynchronous:
        limits.do(client.close)
    assert limits.left("missed") == 5
    limits.do(limits.limiter.close)


def test_a_call_that_could_not_be_made_gives_its_permit_back(asynchronous: bool) -> None:
    limiter: Any = AsyncConcurrencyLimiter(Fixed(1)) if asynchronous else ConcurrencyLimiter(Fixed(1))
    kind: Any = faces.AsyncConcurrencyClient if asynchronous else faces.ConcurrencyClientInterceptor
    could_not_be_made(asynchronous, kind(limiter, outcome=dropped))
    seen = limiter.statistics()
    assert (seen.in_flight, seen.ignored, seen.dropped) == (0, 1, 0)
    awaited(limiter.close) if asynchronous else limiter.close()
