"""Faces of a shared concurrency limiter: at most N requests of a key at once over the fleet."""

import asyncio
import json
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from django.core.handlers.wsgi import WSGIHandler

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimiter
from batchlimit.base.clock import steady
from batchlimit.errors import PermitLost
from batchlimit.integrations import grpc as faces
from batchlimit.integrations.asgi import ConcurrencyLimitMiddleware
from batchlimit.integrations.carried import PERMIT
from batchlimit.integrations.grpc import check_permit, current_permit
from batchlimit.integrations.wsgi import ConcurrencyLimitMiddleware as WSGIMiddleware
from batchlimit.rules import Rule
from batchlimit.shared import AsyncSharedConcurrencyLimiter, Shared, SharedConcurrencyLimiter
from batchlimit.stores import MemoryStore
from tests.awaiting import awaited
from tests.integrations.asgi import Hello, call, http, part, start
from tests.integrations.django_site import Site
from tests.integrations.stage import server
from tests.integrations.test_asgi_concurrency import Held, counts
from tests.integrations.test_wsgi import App, Reply, request
from tests.nodes import await_fact
from tests.recording import Recording
from tests.shared.test_limiter import Cut
from tests.sync.stage import DEADLINE


def path(scope: Any) -> str:
    return f"path:{scope['path']}"


async def test_asgi_requests_of_two_instances_count_together() -> None:
    store = MemoryStore()
    one, other = (AsyncSharedConcurrencyLimiter(store, {"path:*": 1}) for _ in range(2))
    held = Held()
    first = asyncio.create_task(call(ConcurrencyLimitMiddleware(held, one, key=path), http(path="/a")))
    await held.begun.wait()
    hello = ConcurrencyLimitMiddleware(Hello(), other, key=path)
    refused = await call(hello, http(path="/a"))
    assert (refused.status, json.loads(refused.body)["detail"]) == (503, "limit")
    assert (await call(hello, http(path="/b"))).status == 200
    held.end.set()
    assert (await first).status == 200
    assert (await call(ConcurrencyLimitMiddleware(Hello(), other, key=path, timeout=60), http(path="/a"))).status
    for limiter in (one, other):
        await limiter.close()


class Losing:
    """Loses its permit in the middle: before its response, within it, or after it, in a task in the background."""

    def __init__(self, store: Cut, when: str) -> None:
        self.store, self.when, self.tokens = store, when, list[int]()
        self.is_cancelled, self.is_done = False, False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.tokens.append(scope[PERMIT].token)
        if self.when != "before":
            await send(start())
            await send(part(b"a", more=self.when == "within"))
        self.store.is_away = True
        try:
            if self.when == "after":
                over = scope[PERMIT]._held.lease.until
                await asyncio.to_thread(await_fact, lambda: steady() * 1e9 > over, "the lease would be over")
                await asyncio.sleep(0)
            else:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise
        self.is_done = True


@pytest.mark.parametrize(
    ("when", "cancelled", "ends"), [("before", True, 503), ("within", True, PermitLost), ("after", False, 200)]
)
async def test_an_asgi_request_whose_permit_is_lost_is_cancelled(when: str, cancelled: bool, ends: Any) -> None:
    store = Cut()
    lease = 0.1 if when == "before" else 1.0  # a stall before the response would be another story
    async with AsyncSharedConcurrencyLimiter(store, {"gpu": Shared(1, lease=lease)}, deadline=30.0) as limiter:
        app = Losing(store, when)
        middleware = ConcurrencyLimitMiddleware(app, limiter, key=lambda scope: "gpu")
        if isinstance(ends, int):
            assert (await call(middleware, http())).status == ends
        else:
            with pytest.raises(ends):
                await call(middleware, http())
        assert (app.is_cancelled, app.is_done, app.tokens[0] > 0) == (cancelled, not cancelled, True)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
        store.is_away = False


@pytest.mark.usefixtures("without_breaker")  # which would be open for a moment more
def test_a_wsgi_request_counts_in_the_fleet_and_may_look_whether_its_permit_is_lost() -> None:
    store = Cut()

    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        store.is_away = True
        await_fact(lambda: environ[PERMIT].lost, "it is lost")
        environ[PERMIT].check()
        raise AssertionError

    with SharedConcurrencyLimiter(store, {"gpu": Shared(1, lease=0.1)}, deadline=30.0) as limiter:
        options: Any = {"key": lambda environ: "gpu"}
        with SharedConcurrencyLimiter(store, {"gpu": 1}, deadline=30.0) as other, other.acquire("gpu"):
            assert Reply(WSGIMiddleware(App(), limiter, **options), request()).status == 503
        with pytest.raises(PermitLost):
            Reply(WSGIMiddleware(app, limiter, timeout=DEADLINE, **options), request())
        store.is_away = False
        assert Reply(WSGIMiddleware(App(), limiter, timeout=DEADLINE, **options), request()).status == 200


def test_one_key_for_each_request() -> None:
    with SharedConcurrencyLimiter(MemoryStore(), {"*": 1}) as limiter:
        reply = Reply(WSGIMiddleware(App(), limiter, key=lambda environ: ["a", "b"]), request())
        assert (reply.status, json.loads(reply.body)["detail"]) == (503, "no_key")
        with pytest.raises(TypeError, match="needs key="):
            WSGIMiddleware(App(), limiter)


def hold(request: bytes, context: Any) -> bytes:
    assert current_permit().token > 0  # type: ignore[union-attr]
    return request


def handlers(method: Any) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler("test.Shared", {"Call": grpc.unary_unary_rpc_method_handler(method)})


@contextmanager
def calling(asynchronous: bool, method: Any, *interceptors: Any) -> Iterator[Any]:
    """Serve a method of either API; what calls it."""
    with server(asynchronous, handlers(method), *interceptors) as address, grpc.insecure_channel(address) as channel:
        yield channel.unary_unary("/test.Shared/Call")


def of_user(details: Any) -> str:
    return f"user:{dict(details.invocation_metadata)['user']}"


def refused(rpc: Any, user: str) -> tuple[grpc.StatusCode, str]:
    """Call what is refused or ends; its status, and the reason."""
    with pytest.raises(grpc.RpcError) as caught:
        rpc(b"x", metadata=(("user", user),))
    error: Any = caught.value
    return error.code(), dict(error.trailing_metadata())["batchlimit-reason"]


def test_a_threaded_grpc_server_counts_in_the_fleet() -> None:
    store = MemoryStore()
    with (
        SharedConcurrencyLimiter(store, {"user:*": 1}) as here,
        SharedConcurrencyLimiter(store, {"user:*": 1}) as there,
        calling(False, hold, faces.ConcurrencyInterceptor(here, key=of_user)) as rpc,
    ):
        with there.acquire("user:ann"):
            assert refused(rpc, "ann") == (grpc.StatusCode.RESOURCE_EXHAUSTED, "limit")
            assert rpc(b"x", metadata=(("user", "bob"),)) == b"x"
        await_fact(lambda: there.statistics().keys.get("user:ann") is None, "it went back")
        assert rpc(b"x", metadata=(("user", "ann"),)) == b"x"
        await_fact(lambda: all(not each.in_flight for each in here.statistics().keys.values()), "all went back")


async def _shared(store: Any, limits: Any) -> AsyncSharedConcurrencyLimiter:
    return AsyncSharedConcurrencyLimiter(store, limits, deadline=30.0)


@pytest.mark.usefixtures("without_breaker")  # which would be open for a moment more
def test_a_grpc_call_on_asyncio_whose_permit_is_lost_is_cancelled() -> None:
    store = Cut()

    async def wait(request: bytes, context: Any) -> bytes:
        if request == b"quick":
            return request
        store.is_away = True
        await asyncio.Event().wait()
        return b""

    # Longer than a quick call takes, on a machine that stalls.
    limiter = awaited(_shared, store, {"user:*": Shared(1, lease=1.0)})
    with calling(True, wait, faces.AsyncConcurrencyInterceptor(limiter, key=of_user)) as rpc:
        assert rpc(b"quick", metadata=(("user", "ann"),)) == b"quick"
        assert refused(rpc, "ann") == (grpc.StatusCode.UNAVAILABLE, "lost")
        store.is_away = False
        assert rpc(b"quick", metadata=(("user", "ann"),)) == b"quick"
    awaited(limiter.close)


RULES = [Rule("all", "1/hour", key="all")]


async def echo(request: bytes, context: Any) -> bytes:
    return request


def test_grpc_rules_behind_a_concurrency_limit_give_the_permit_back_without_a_sample(asynchronous: bool) -> None:
    limiter: Any = (AsyncConcurrencyLimiter if asynchronous else ConcurrencyLimiter)(Recording(2))
    bound: Any = faces.AsyncConcurrencyInterceptor if asynchronous else faces.ConcurrencyInterceptor
    rules: Any = (faces.AsyncRateLimitInterceptor if asynchronous else faces.RateLimitInterceptor)("memory://", RULES)
    method = echo if asynchronous else lambda request, context: request
    with calling(asynchronous, method, bound(limiter), rules) as rpc:
        assert rpc(b"x") == b"x"
        with pytest.raises(grpc.RpcError):
            rpc(b"x")
    await_fact(lambda: counts(limiter) == (0, 1, 0, 1), "all went back")
    for each in (rules, limiter) if asynchronous else ():
        awaited(each.close)


def test_a_threaded_grpc_call_whose_permit_is_lost_ends_where_its_handler_looks() -> None:
    store = Cut()

    def work(request: bytes, context: Any) -> bytes:
        store.is_away = True
        await_fact(lambda: current_permit().lost, "it is lost")  # type: ignore[union-attr]
        check_permit()
        raise AssertionError

    limits = {"user:*": Shared(1, lease=0.1)}
    with SharedConcurrencyLimiter(store, limits, deadline=30.0) as limiter:
        with calling(False, work, faces.ConcurrencyInterceptor(limiter, key=of_user)) as rpc:
            assert refused(rpc, "ann") == (grpc.StatusCode.UNAVAILABLE, "lost")
        store.is_away = False


SEARCH = Rule("search", "2/hour", key="search:{user}", match=None)


@pytest.mark.parametrize(("rule", "status"), [(RULES[0], 503), (SEARCH, 403)], ids=["no rule has its key", "no user"])
def test_a_throttle_of_rest_framework_refuses_without_a_sample(rule: Rule, status: int) -> None:
    with closing(Site(False, rule)), ConcurrencyLimiter(Recording(1)) as limiter:
        assert Reply(WSGIMiddleware(WSGIHandler(), limiter), request(path="/rest")).status == status
        assert counts(limiter) == (0, 0, 0, 1)
