"""Applications on ASGI behind each limiter, and a caller that has no sockets."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import redis.asyncio
from fastapi import Depends, FastAPI, Request
from fastapi.requests import HTTPConnection

from batchlimit import AsyncRateLimiter
from batchlimit.integrations.asgi import RateLimitMiddleware
from batchlimit.integrations.fastapi import limited
from batchlimit.rules import Rule, Rules
from benchmarks.web_floor import on_asgi
from benchmarks.web_rules import (
    ASKED,
    EMPTY,
    FLOOR_OF_FOUR,
    FLOOR_OF_ONE,
    FOUR,
    ONE,
    PATH,
    PLENTY,
    ROUTE,
    USER,
    of_scope,
)

App = Callable[[Any, Any, Any], Awaitable[None]]
Opened = AbstractAsyncContextManager[App]
_START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}
_BODY = {"type": "http.response.body", "body": b"hello"}
_HEADERS = [(b"host", b"api.example"), (b"user-agent", b"benchmark"), (b"accept", b"*/*"), (b"x-user", USER)]


async def plain(_scope: Any, _receive: Any, send: Any) -> None:
    """Answer at once."""
    await send(_START)
    await send(_BODY)


def fast(*dependencies: Any) -> FastAPI:
    """Return an application of one asynchronous route."""
    app = FastAPI()

    @app.get(ROUTE, dependencies=list(dependencies))
    async def item(id: int) -> dict[str, int]:  # noqa: A002
        return {"id": id}

    return app


async def nothing(connection: HTTPConnection) -> None:
    """A dependency that does nothing."""


@asynccontextmanager
async def alone(app: App) -> AsyncIterator[App]:
    """Without a limiter."""
    yield app


@asynccontextmanager
async def ours(app: App, url: str, rules: list[Rule], headers: Any = "draft-11") -> AsyncIterator[App]:
    """Behind our middleware."""
    async with AsyncRateLimiter.from_url(url, Rules(rules).quotas, deadline=5.0) as limiter:
        yield RateLimitMiddleware(app, limiter, rules, identify=of_scope, headers=headers, checks=False)


@asynccontextmanager
async def slowapi(url: str, limits: int) -> AsyncIterator[App]:
    """FastAPI with this many limits of slowapi on the route."""
    from slowapi import Limiter
    from slowapi.util import get_remote_address

    app = FastAPI()
    limiter = Limiter(key_func=get_remote_address, storage_uri=url.replace("unix://", "redis+unix://"))
    app.state.limiter = limiter

    async def item(request: Request, id: int) -> dict[str, int]:  # noqa: A002
        return {"id": id}

    endpoint: Any = item
    for number in range(limits):
        endpoint = limiter.shared_limit(f"{PLENTY}/second", scope=f"limit-{number}")(endpoint)
    app.get(ROUTE)(endpoint)
    yield app


@asynccontextmanager
async def fastapi_limiter(url: str, limits: int) -> AsyncIterator[App]:
    """FastAPI with this many dependencies of fastapi-limiter on the route."""
    from fastapi_limiter.depends import RateLimiter
    from pyrate_limiter import Duration, Limiter, Rate, SingleBucketFactory, StateBucket, TokenBucket
    from pyrate_limiter.buckets.redis_state import RedisStateStore

    async with redis.asyncio.Redis.from_url(url) as client:

        def limiter(number: int) -> Any:
            rate = Rate(PLENTY, Duration.SECOND, burst=PLENTY)
            bucket = StateBucket([rate], algorithm=TokenBucket(), store=RedisStateStore(client, f"limit-{number}"))
            return RateLimiter(Limiter(SingleBucketFactory(bucket, schedule_leak=False)))

        yield fast(*(Depends(limiter(number)) for number in range(limits)))


@asynccontextmanager
async def asgi_ratelimit(app: App, url: str, limits: int) -> AsyncIterator[App]:
    """Behind the middleware of asgi-ratelimit: windows of a second, a minute, an hour and a day."""
    from ratelimit import RateLimitMiddleware as Middleware
    from ratelimit import Rule as Windows
    from ratelimit.backends.redis import RedisBackend

    async def who(_scope: Any) -> tuple[str, str]:
        return USER.decode(), "default"

    windows: dict[str, Any] = dict.fromkeys(["second", "minute", "hour", "day"][:limits], PLENTY)
    async with redis.asyncio.StrictRedis.from_url(url) as client:
        yield Middleware(app, who, RedisBackend(client), {r"^/api/": [Windows(**windows)]})


def stacks_on_plain(url: str) -> dict[str, Opened]:
    """Return an application that does nothing else, behind each that needs no framework."""
    return {
        "no limiter": alone(plain),
        FLOOR_OF_ONE: alone(on_asgi(plain, ONE)),
        FLOOR_OF_FOUR: alone(on_asgi(plain, FOUR)),
        "batchlimit, 1 rule": ours(plain, url, ONE),
        "batchlimit, 4 rules": ours(plain, url, FOUR),
        "batchlimit, 4 rules, no headers": ours(plain, url, FOUR, "off"),
        "asgi-ratelimit, 1 limit": asgi_ratelimit(plain, url, 1),
        "asgi-ratelimit, 4 limits": asgi_ratelimit(plain, url, 4),
    }


def stacks_on_fastapi(url: str) -> dict[str, Opened]:
    """Return an application of FastAPI behind each."""
    return {
        "no limiter": alone(fast()),
        FLOOR_OF_ONE: alone(on_asgi(fast(), ONE)),
        FLOOR_OF_FOUR: alone(on_asgi(fast(), FOUR)),
        "batchlimit, 1 rule": ours(fast(), url, ONE),
        "batchlimit, 4 rules": ours(fast(), url, FOUR),
        EMPTY: alone(fast(Depends(nothing))),
        "batchlimit, 1 rule of a dependency": ours(fast(Depends(limited(ASKED[0].key))), url, ASKED),
        "slowapi, 1 limit": slowapi(url, 1),
        "slowapi, 4 limits": slowapi(url, 4),
        "fastapi-limiter, 1 limit": fastapi_limiter(url, 1),
        "fastapi-limiter, 4 limits": fastapi_limiter(url, 4),
        "asgi-ratelimit, 1 limit": asgi_ratelimit(fast(), url, 1),
        "asgi-ratelimit, 4 limits": asgi_ratelimit(fast(), url, 4),
    }


async def entered(stack: AsyncExitStack, opened: dict[str, Opened]) -> dict[str, App]:
    """Open them all."""
    return {name: await stack.enter_async_context(each) for name, each in opened.items()}


async def serve(app: App, requests: int) -> None:
    """Have requests answered, one after the other."""
    for _ in range(requests):
        await app(_scope(), _receive, _send)


async def _receive() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _send(message: Any) -> None:
    """Take what is sent; a refusal or an error would be measured as if it were fast."""
    if message.get("status", 200) != 200:
        raise AssertionError(f"no 200: {message}")


def _scope() -> dict[str, Any]:
    """Return a request, as a server makes one for each."""
    return {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": _HEADERS,
        "client": ("192.0.2.1", 50_000),
        "server": ("192.0.2.2", 80),
    }
