"""How many requests of an ASGI application are under way at once, and what their ends tell the limiter."""

import asyncio
import json
from typing import Any

import pytest

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimited, Partitions, Queue
from batchlimit.concurrency import Outcome
from batchlimit.integrations.asgi import ConcurrencyLimitMiddleware
from batchlimit.integrations.enforcement import Response
from batchlimit.laws import Fixed
from tests.garbage import kept
from tests.integrations.asgi import Hello, call, http, part, start, websocket

pytestmark = pytest.mark.virtual_time


class Held:
    """Streams a first part, and ends when it is told."""

    def __init__(self) -> None:
        self.begun, self.end = asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        await send(part(b"a", more=True))
        self.begun.set()
        await self.end.wait()
        await send(part(b"b"))


def counts(limiter: AsyncConcurrencyLimiter) -> tuple[int, int, int, int]:
    found = limiter.statistics()
    return found.in_flight, found.succeeded, found.dropped, found.ignored


async def test_a_stream_holds_its_permit_to_its_end_and_the_next_request_gets_a_503_at_once() -> None:
    async with AsyncConcurrencyLimiter(Fixed(1)) as limiter:
        held = Held()
        middleware = ConcurrencyLimitMiddleware(held, limiter)
        first = asyncio.create_task(call(middleware, http()))
        await held.begun.wait()
        refused = await call(middleware, http())
        assert refused.status == 503
        assert refused.fields[b"cache-control"] == b"no-store"
        problem = json.loads(refused.body)
        assert problem["type"].endswith("#temporary-reduced-capacity")
        assert problem["detail"] == "limit"
        assert counts(limiter) == (1, 0, 0, 0)
        held.end.set()
        assert (await first).body == b"ab"
        assert counts(limiter) == (0, 1, 0, 0)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(200, "succeeded"), (404, "succeeded"), (429, "dropped"), (500, "ignored"), (503, "dropped"), (504, "dropped")],
)
async def test_the_status_feeds_the_law(status: int, outcome: str) -> None:
    async with AsyncConcurrencyLimiter(Fixed(1)) as limiter:
        await call(ConcurrencyLimitMiddleware(Hello(status), limiter), http())
        assert getattr(limiter.statistics(), outcome) == 1


async def test_an_own_judgement_feeds_the_law() -> None:
    async with AsyncConcurrencyLimiter(Fixed(1)) as limiter:
        app = ConcurrencyLimitMiddleware(Hello(), limiter, outcome=lambda response: Outcome.DROPPED)
        await call(app, http())
        assert counts(limiter) == (0, 0, 1, 0)


async def test_an_exception_goes_on_and_returns_the_permit() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ZeroDivisionError

    async with AsyncConcurrencyLimiter(Fixed(1)) as limiter:
        with pytest.raises(ZeroDivisionError):
            await call(ConcurrencyLimitMiddleware(app, limiter), http())
        assert counts(limiter) == (0, 0, 0, 1)


def _raises(response: Response) -> Outcome:
    raise ZeroDivisionError


@pytest.mark.parametrize("outcome", [_raises, lambda response: None, lambda response: True, lambda response: "good"])
async def test_a_judgement_that_fails_returns_the_permit_all_the_same(outcome: Any) -> None:
    async with AsyncConcurrencyLimiter(Fixed(1)) as limiter:
        reply = await call(ConcurrencyLimitMiddleware(Hello(), limiter, outcome=outcome), http())
        assert reply.status == 200
        assert counts(limiter) == (0, 0, 0, 1)


@pytest.mark.parametrize("partition", [lambda scope: 1 / 0, lambda scope: None, lambda scope: ["live"]])
@pytest.mark.parametrize("bypass", [None, lambda scope: 1 / 0])
async def test_a_function_that_fails_is_no_error_of_the_application_and_lets_nobody_by(
    partition: Any, bypass: Any
) -> None:
    async with AsyncConcurrencyLimiter(Fixed(1)) as limiter:
        app = ConcurrencyLimitMiddleware(Hello(), limiter, partition=partition, bypass=bypass)
        assert (await call(app, http())).status == 200
        assert limiter.statistics().succeeded == 1


async def test_a_request_that_is_cancelled_tells_nothing() -> None:
    async with AsyncConcurrencyLimiter(Fixed(1)) as limiter:
        held = Held()
        request = asyncio.create_task(call(ConcurrencyLimitMiddleware(held, limiter), http()))
        await held.begun.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert counts(limiter) == (0, 0, 0, 1)


async def test_a_request_whose_client_has_left_holds_its_permit_while_the_application_works_on() -> None:
    async with AsyncConcurrencyLimiter(Fixed(1)) as limiter:

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            assert counts(limiter) == (1, 0, 0, 0)

        await call(ConcurrencyLimitMiddleware(app, limiter), http(), {"type": "http.disconnect"})
        assert counts(limiter) == (0, 0, 0, 1)


async def test_a_last_part_that_nobody_is_there_for_returns_the_permit_and_tells_nothing() -> None:
    async with AsyncConcurrencyLimiter(Fixed(1)) as limiter:

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            await Hello()(scope, receive, send)
            assert counts(limiter) == (0, 0, 0, 1)

        await call(ConcurrencyLimitMiddleware(app, limiter), http(), {"type": "http.disconnect"})


async def test_a_request_may_wait_in_the_queue() -> None:
    async with AsyncConcurrencyLimiter(Fixed(1), queue=Queue()) as limiter:
        held = Held()
        middleware = ConcurrencyLimitMiddleware(held, limiter, timeout=10)
        requests = [asyncio.create_task(call(middleware, http())) for _ in range(2)]
        await held.begun.wait()
        held.end.set()
        assert [(await each).status for each in requests] == [200, 200]


async def test_a_partition_is_chosen_and_what_bypasses_is_not_limited() -> None:
    partitions = Partitions({"paid": 0.5}, unknown="refuse")
    async with AsyncConcurrencyLimiter(Fixed(2), partitions=partitions) as limiter:
        middleware = ConcurrencyLimitMiddleware(
            Hello(),
            limiter,
            partition=lambda scope: scope["path"][1:],
            bypass=lambda scope: scope["path"] == "/health",
        )
        statuses = [(await call(middleware, http(path))).status for path in ("/paid", "/nobody", "/health")]
        assert statuses == [200, 503, 200]


async def test_websockets_and_a_lifespan_pass_by() -> None:
    async with AsyncConcurrencyLimiter(Fixed(1)) as limiter, limiter.acquire():
        app = Hello()
        disconnect = {"type": "websocket.disconnect", "code": 1000}
        await call(ConcurrencyLimitMiddleware(app, limiter), websocket(), {"type": "websocket.connect"}, disconnect)
        assert len(app.seen) == 1


async def test_a_closed_limiter_is_a_503() -> None:
    limiter = AsyncConcurrencyLimiter(Fixed(1))
    await limiter.close()
    assert (await call(ConcurrencyLimitMiddleware(Hello(), limiter), http())).status == 503


async def test_a_request_of_higher_priority_displaces_one_that_waits() -> None:
    async with AsyncConcurrencyLimiter(Fixed(1), queue=Queue(1, max_wait=None)) as limiter:
        middleware = ConcurrencyLimitMiddleware(
            Hello(), limiter, timeout=60.0, priority=lambda scope: len(scope["path"])
        )
        held = await limiter.acquire()
        low = asyncio.create_task(call(middleware, http(path="/")))
        await asyncio.sleep(0)  # the request is in the queue then
        assert limiter.statistics().waiting == 1
        high = asyncio.create_task(call(middleware, http(path="/pay")))
        refused = await low
        assert (refused.status, json.loads(refused.body)["detail"]) == (503, "queue_full")
        held.success()
        assert (await high).status == 200


async def test_a_refused_request_leaves_nothing_to_the_garbage_collector() -> None:
    async with AsyncConcurrencyLimiter(Fixed(1)) as limiter:
        limited = ConcurrencyLimitMiddleware(Hello(), limiter)
        async with limiter.acquire():
            with kept(ConcurrencyLimited) as left:
                assert (await call(limited, http())).status == 503
            assert left == []
