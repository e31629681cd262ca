"""An application of the matrix behind a real server in a process of its own: FACE URL PREFIX PERMITS. It says its port.

PERMITS is how many requests are under way at most, by a concurrency limiter before all else; 0: there is none.
"""

import asyncio
import signal
import socket
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimiter
from batchlimit.integrations import asgi, wsgi
from batchlimit.laws import Fixed
from tests.integrations.faces.rules import MESSAGES, RULES, VIEWS
from tests.integrations.made import View
from tests.integrations.matrix.backing import Backing
from tests.listening import listening


def say(port: int) -> None:
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()


def announced() -> socket.socket:
    """A socket to listen on, whose port was said."""
    found = listening()
    say(found.getsockname()[1])
    return found


def uvicorn(app: Any) -> None:
    import uvicorn

    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=10, timeout_keep_alive=1000)
    uvicorn.Server(config).run(sockets=[announced()])


def hypercorn(app: Any) -> None:
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    async def main() -> None:
        ended = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
        config, sock = Config(), announced()
        config.bind, config.keep_alive_timeout = [f"fd://{sock.detach()}"], 1000.0
        await serve(app, config, shutdown_trigger=ended.wait)

    asyncio.run(main())


def daphne(app: Any) -> None:
    from daphne.server import Server  # type: ignore[import-untyped]

    def ready() -> None:
        say(server.listening_addresses[0][1])

    server = Server(app, endpoints=["tcp:port=0:interface=127.0.0.1"], ready_callable=ready)
    server.run()


def waitress(app: Any) -> None:
    from waitress.server import create_server

    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    create_server(
        app, sockets=[announced()], threads=8, channel_timeout=1000, clear_untrusted_proxy_headers=False
    ).run()


def aiohttp(app: Any) -> None:
    from aiohttp import web

    web.run_app(app, sock=announced(), print=None, shutdown_timeout=10.0, keepalive_timeout=1000.0)


def _made(module: str, *more: View, **options: Any) -> Callable[[Any], Any]:
    def make(limiter: Any) -> Any:
        made = import_module(f"tests.integrations.made.{module}").made
        return made([*VIEWS, *more], limiter, RULES, **options)[0]

    return make


_plain = _made("plain", View("/chat", None), messages=MESSAGES)
SERVED: dict[str, tuple[Callable[[Any], None], Callable[[Any], Any]]] = {
    "asgi": (uvicorn, _plain),
    "asgi-hypercorn": (hypercorn, _plain),
    "asgi-daphne": (daphne, _plain),
    "starlette": (uvicorn, _made("starlette")),
    "fastapi": (uvicorn, _made("fastapi")),
    "litestar": (uvicorn, _made("litestar")),
    "quart": (uvicorn, _made("quart")),
    "django-async": (uvicorn, _made("django", kind="async")),
    "django": (waitress, _made("django", kind="sync")),
    "django-rest": (waitress, _made("django", kind="rest")),
    "flask": (waitress, _made("flask")),
    "aiohttp": (aiohttp, _made("aiohttp")),
}
"""How each face is served, and what makes its application."""
HTTP = list(SERVED)
THREADS = ("django", "django-rest", "flask")
REFUSES_ITSELF = ("asgi-daphne",)
"""Their server tells the application of no start and no end, and answers a refused handshake by itself."""
MESSAGES_CLOSED_BY = {"asgi": 1008, "asgi-hypercorn": 1008, "asgi-daphne": 1011}
"""What the client of a websocket sees, one of whose messages is refused."""
WEBSOCKETS = ("asgi", "asgi-hypercorn", "starlette", "fastapi", "litestar", "quart", "aiohttp")


def bounded(app: Any, face: str, permits: int) -> Any:
    """Return an application that lets so many requests in at once."""
    if face in THREADS:
        return wsgi.ConcurrencyLimitMiddleware(app, ConcurrencyLimiter(Fixed(permits)))
    return asgi.ConcurrencyLimitMiddleware(app, AsyncConcurrencyLimiter(Fixed(permits)))


def main(face: str, url: str, prefix: str, permits: str) -> None:
    backing = Backing(url, prefix, [*RULES, *MESSAGES])
    backing.obey()
    serve, make = SERVED[face]
    app = make(backing.open if face in THREADS else backing.open_async)
    serve(bounded(app, face, int(permits)) if int(permits) else app)


if __name__ == "__main__":
    main(*sys.argv[1:])
