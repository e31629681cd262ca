"""Servers that run in a thread of this process: each yields its port, and closes what is behind its application."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web
from hypercorn.asyncio import serve
from hypercorn.config import Config
from uvicorn import Config as UvicornConfig
from uvicorn import Server
from waitress.server import create_server
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.integrations.backing import Backing
from tests.listening import listening

DEADLINE = 100.0
Listens = Callable[[int], None]


@contextmanager
def uvicorn(app: Any, behind: Backing) -> Iterator[int]:
    server = Server(UvicornConfig(app, log_level="critical", port=0, ws="websockets-sansio"))

    async def main(listens: Listens) -> None:
        serving = asyncio.create_task(server.serve([listener := listening()]))
        listens(listener.getsockname()[1])
        await serving

    def stop() -> None:
        server.should_exit = True

    with _in_thread(main, stop, behind) as port:
        yield port


@contextmanager
def hypercorn(app: Any, behind: Backing) -> Iterator[int]:
    stopped = threading.Event()

    async def main(listens: Listens) -> None:
        config, listener = Config(), listening()
        config.bind, config.keep_alive_timeout = [f"fd://{listener.fileno()}"], 1000.0
        listens(listener.getsockname()[1])
        listener.detach()  # it is the server's to close
        await serve(app, config, shutdown_trigger=lambda: asyncio.to_thread(stopped.wait))

    with _in_thread(main, stopped.set, behind) as port:
        yield port


@contextmanager
def aiohttp(app: web.Application, behind: Backing) -> Iterator[int]:
    stopped = threading.Event()

    async def main(listens: Listens) -> None:
        runner = web.AppRunner(app, shutdown_timeout=0.0, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        listens(runner.addresses[0][1])
        await asyncio.to_thread(stopped.wait)
        await runner.cleanup()

    with _in_thread(main, stopped.set, behind) as port:
        yield port


class Quiet(WSGIRequestHandler):
    """Writes no log."""

    protocol_version = "HTTP/1.1"  # whose streams have parts

    def log(self, *told: object) -> None:
        pass


@contextmanager
def werkzeug(app: Any, behind: Backing) -> Iterator[int]:
    """A thread for each connection."""
    server: Any = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    server.daemon_threads = False  # so that its end is that of all requests
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        behind.close_of_threads()


@contextmanager
def waitress(app: Any, behind: Backing) -> Iterator[int]:
    """It ends with its last connection."""
    listener = listening()
    server: Any = create_server(app, sockets=[listener], threads=8, clear_untrusted_proxy_headers=False)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.task_dispatcher.shutdown()  # no thread of it wakes the server any more
        server.trigger.pull_trigger(server.close)  # in the thread that polls its sockets
        thread.join(DEADLINE)
        behind.close_of_threads()


@contextmanager
def _in_thread(serve: Callable[[Listens], Awaitable[None]], stop: Callable[[], None], behind: Backing) -> Iterator[int]:
    """Run a server on a loop of its own; close what was made when it has ended."""
    ports, is_listening = list[int](), threading.Event()

    def listens(port: int) -> None:
        ports.append(port)
        is_listening.set()

    async def main() -> None:
        await serve(listens)
        await behind.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert is_listening.wait(DEADLINE)
        yield ports[0]
    finally:
        stop()
        thread.join()
