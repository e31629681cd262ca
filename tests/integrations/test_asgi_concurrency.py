"""How many requests of an ASGI application are under way at once, and what their ends tell the limiter."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimited, Queue
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, KeyedConcurrencyLimiter, Outcome
from batchlimit.integrations.asgi import ConcurrencyLimitMiddleware
from batchlimit.integrations.grpc import AsyncConcurrencyInterceptor
from batchlimit.integrations.wsgi import ConcurrencyLimitMiddleware as WSGIMiddleware
from batchlimit.laws import Fixed
from batchlimit.shared import AsyncSharedConcurrencyLimiter
from batchlimit.stores import MemoryStore
from tests.garbage import kept
from tests.integrations.asgi import Hello, call, http, part, start, websocket
from tests.integrations.test_wsgi import App, Reply, request

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


def counts(limiter: Any) -> tuple[int, int, int, int]:
    """Return how many are under way, succeeded, were dropped and ignored."""
    found = limiter.statistics()
    return found.in_flight, found.succeeded, found.dropped, found.ignored


DROPPED, IGNORED = (0, 0, 1, 0), (0, 0, 0, 1)


@pytest.mark.parametrize(
    ("status", "outcome", "counted"),
    [
        (504, None, DROPPED),
        (200, lambda response: Outcome.DROPPED, DROPPED),
        *[(200, outcome, IGNORED) for outcome in (lambda _: 1 / 0, lambda _: None, lambda _: True, lambda _: "good")],
    ],
)
async def test_the_status_or_a_judgement_feeds_the_law(status: int, outcome: Any, counted: tuple[int, ...]) -> None:
    async with AsyncConcurrencyLimiter(Fixed(1)) as limiter:
        options = {} if outcome is None else {"outcome": outcome}
        reply = await call(ConcurrencyLimitMiddleware(Hello(status), limiter, **options), http())
        assert reply.status == status
        assert counts(limiter) == counted


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


async def test_websockets_and_a_lifespan_pass_by() -> None:
    async with AsyncConcurrencyLimiter(Fixed(1)) as limiter, limiter.acquire():
        app = Hello()
        disconnect = {"type": "websocket.disconnect", "code": 1000}
        await call(ConcurrencyLimitMiddleware(app, limiter), websocket(), {"type": "websocket.connect"}, disconnect)
        assert len(app.seen) == 1


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


# The key, or the keys, of each request decide which limit it counts by
KeyOf = Callable[[Any], Any]


def path(scope: Any) -> str:
    return f"path:{scope['path']}"


def path_and_all(scope: Any) -> list[str]:
    return [path(scope), "all"]


@pytest.mark.parametrize(("key", "statuses"), [(path, [503, 200, 200]), (path_and_all, [503, 200, 503])])
@pytest.mark.virtual_time
async def test_asgi_requests_count_by_their_keys(key: KeyOf, statuses: list[int]) -> None:
    async with AsyncKeyedConcurrencyLimiter({"path:*": 1, "all": 2}) as limiter:
        held, other = Held(), Held()
        first = asyncio.create_task(call(ConcurrencyLimitMiddleware(held, limiter, key=key), http(path="/a")))
        await held.begun.wait()
        hello = ConcurrencyLimitMiddleware(Hello(), limiter, key=key)
        seen = [(await call(hello, http(path=each))).status for each in ("/a", "/b")]
        second = asyncio.create_task(call(ConcurrencyLimitMiddleware(other, limiter, key=key), http(path="/b")))
        await other.begun.wait()
        assert [*seen, (await call(hello, http(path="/c"))).status] == statuses
        held.end.set()
        other.end.set()
        assert [(await each).status for each in (first, second)] == [200, 200]
        assert limiter.busiest() == []


@pytest.mark.parametrize("key", [lambda request: 1 / 0, lambda request: None, lambda request: "unknown", lambda _: [7]])
def test_a_request_whose_key_cannot_be_made_is_refused(key: KeyOf) -> None:
    limiter = KeyedConcurrencyLimiter({"path:*": 1})
    reply = Reply(WSGIMiddleware(App(), limiter, key=key), request())
    assert (reply.status, json.loads(reply.body)["detail"]) == (503, "no_key")
    assert limiter.busiest() == []


def test_a_key_and_a_keyed_limiter_come_together() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    keyed = AsyncKeyedConcurrencyLimiter({"*": 1})
    with pytest.raises(TypeError, match="a AsyncKeyedConcurrencyLimiter needs key="):
        ConcurrencyLimitMiddleware(app, keyed)
    with pytest.raises(TypeError, match="key= is for a limiter by key"):
        ConcurrencyLimitMiddleware(app, AsyncConcurrencyLimiter(Fixed(1)), key=path)
    shared = AsyncSharedConcurrencyLimiter(MemoryStore(), {"*": 1})
    with pytest.raises(TypeError, match="sheddable= is for limiters of this process"):
        AsyncConcurrencyInterceptor(shared, key=path, sheddable=lambda details: True)
