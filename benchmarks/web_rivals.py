"""What the usual limiters of FastAPI do with included routers and streams, beside ours, on the same application.

    python -m benchmarks.web_rivals

Each limiter gets an application of its own, with a limit of 3 requests. Each route is called six times by hand, without
a socket or a store: a route of the application, one of an included router, and a stream of three parts.
"""

import asyncio
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import StreamingResponse

from batchlimit.integrations.fastapi import add_rate_limits, limited
from batchlimit.rules import Rule

PACKAGES = ["batchlimit", "slowapi", "fastapi-limiter", "pyrate-limiter", "fastapi", "starlette"]
CALLS, LIMIT = 6, 3
PATHS = ["/direct", "/included", "/stream"]
Reply = tuple[str, int, str]


def application(routed: Callable[[Any, Any], None]) -> FastAPI:
    """Return an application whose three routes are made by a limiter's own means."""
    app, router = FastAPI(), APIRouter()
    routed(app, router)
    app.include_router(router)
    return app


async def parts() -> Any:
    """Yield three parts."""
    for _ in range(3):
        yield b"part"


def with_batchlimit() -> FastAPI:
    """A dependency, and the middleware."""

    def routed(app: FastAPI, router: APIRouter) -> None:
        add_rate_limits(app, "memory://", [Rule("route", f"{LIMIT}/hour", key="route:{path}", match=None)])

        def limit(name: str) -> list[Any]:
            return [Depends(limited("route:{path}", identify=lambda: {"path": name}))]

        app.get("/direct", dependencies=limit("direct"))(lambda: "ok")
        router.get("/included", dependencies=limit("included"))(lambda: "ok")
        app.get("/stream", dependencies=limit("stream"))(lambda: StreamingResponse(parts()))

    return application(routed)


def with_slowapi(middleware: str) -> FastAPI:
    """Its default limits, which hold for every route, and one of its two middlewares."""
    import slowapi
    import slowapi.middleware
    from slowapi.util import get_remote_address

    def routed(app: FastAPI, router: APIRouter) -> None:
        limiter = slowapi.Limiter(get_remote_address, default_limits=[f"{LIMIT}/hour"], headers_enabled=True)
        app.state.limiter = limiter
        handler: Any = slowapi._rate_limit_exceeded_handler
        app.add_exception_handler(slowapi.errors.RateLimitExceeded, handler)
        app.add_middleware(getattr(slowapi.middleware, middleware))

        @app.get("/direct")
        def direct(request: Request) -> str:
            return "ok"

        @router.get("/included")
        def included(request: Request) -> str:
            return "ok"

        @app.get("/stream")
        def stream(request: Request) -> StreamingResponse:
            return StreamingResponse(parts())

    return application(routed)


def with_fastapi_limiter(*, includes: bool) -> FastAPI:
    """Its dependency. Its routes break as soon as the application includes a router, so once without."""
    from fastapi_limiter.depends import RateLimiter
    from pyrate_limiter import Duration, Limiter, Rate

    def routed(app: FastAPI, router: APIRouter) -> None:
        def limit() -> list[Any]:
            return [Depends(RateLimiter(limiter=Limiter(Rate(LIMIT, Duration.HOUR))))]

        if includes:
            router.get("/included", dependencies=limit())(lambda: "ok")
            app.include_router(router)
        app.get("/direct", dependencies=limit())(lambda: "ok")
        app.get("/stream", dependencies=limit())(lambda: StreamingResponse(parts()))

    if includes:
        return application(routed)
    app = FastAPI()
    routed(app, APIRouter())
    return app


APPLICATIONS: dict[str, Callable[[], FastAPI]] = {
    "batchlimit": with_batchlimit,
    "slowapi, SlowAPIMiddleware": lambda: with_slowapi("SlowAPIMiddleware"),
    "slowapi, SlowAPIASGIMiddleware": lambda: with_slowapi("SlowAPIASGIMiddleware"),
    "fastapi-limiter, no router included": lambda: with_fastapi_limiter(includes=False),
    "fastapi-limiter": lambda: with_fastapi_limiter(includes=True),
}


async def call(app: Any, path: str) -> Reply:
    """Return the status of a response, how many times it started, and what the application raised."""
    starts: list[int] = []

    async def receive() -> dict[str, Any]:
        if not starts:
            return {"type": "http.request", "body": b"", "more_body": False}
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            starts.append(message["status"])

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "scheme": "http",
        "headers": [(b"host", b"example")],
        "client": ("192.0.2.1", 50_000),
        "server": ("example", 80),
    }
    try:
        await app(scope, receive, send)
    except Exception as error:  # noqa: BLE001  a server answers 500
        return "500", len(starts), type(error).__name__
    return str(starts[0]), len(starts), ""


async def measure() -> dict[str, dict[str, list[Reply]]]:
    """Return the replies by limiter and path."""
    return {
        name: {path: [await call(app, path) for _ in range(CALLS)] for path in PATHS}
        for name, app in ((name, make()) for name, make in APPLICATIONS.items())
    }


def main() -> None:
    """Print the versions, and a table."""
    warnings.simplefilter("ignore")
    print(f"Python {sys.version.split()[0]}, " + ", ".join(f"{each} {version(each)}" for each in PACKAGES))
    print(f"\nA limit of {LIMIT} requests for each route, {CALLS} requests each.\n")
    print("| limiter | route | statuses | starts of a response |\n|---|---|---|---|")
    for name, paths in asyncio.run(measure()).items():
        for path, replies in paths.items():
            statuses = " ".join([*(each[0] for each in replies), *sorted({each[2] for each in replies})]).rstrip()
            print(f"| {name} | `{path}` | {statuses} | {max(each[1] for each in replies)} |")


if __name__ == "__main__":
    main()
