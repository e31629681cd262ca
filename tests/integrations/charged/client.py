"""A client of HTTP over sockets, and servers that run in a thread of this process."""

import asyncio
import http.client
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import uvicorn
from aiohttp import web
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.integrations.charged.behind import Behind
from tests.integrations.websocket import echoed, shake

DEADLINE = 100.0


class Client:
    """Asks a server as several users, one a case."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, user: str, path: str, method: str = "GET", *, follows: bool = False, **fields: str) -> int:
        """Ask, read the response to its end, and return its status; `follows`: of the last of the redirects."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            connection.request(method, path, headers={"x-user": user, **fields})
            reply = connection.getresponse()
            reply.read()
        except (http.client.HTTPException, ConnectionError):  # how a server ends a stream that has failed
            return 0
        finally:
            connection.close()
        if follows and (to := reply.getheader("location")) is not None:
            return self.ask(user, "/" + to.removeprefix("http://").partition("/")[2], follows=True)
        return reply.status

    def at_once(self, user: str, path: str, times: int) -> list[int]:
        """Ask several times at once."""
        with ThreadPoolExecutor(times) as pool:
            return sorted(pool.map(lambda _: self.ask(user, path), range(times)))

    def leave(self, user: str, path: str) -> None:
        """Close the connection when the body has begun."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: h\r\nX-User: {user}\r\n\r\n".encode())
            told = b""
            while b"xxx" not in told:
                told += connection.recv(4096)

    def talk(self, user: str, path: str, messages: int) -> None:
        """Shake hands, send messages, hear each of them again, and close."""
        with shake(self.port, path, user) as websocket:
            for number in range(messages):
                assert echoed(websocket, str(number)) == str(number)


@contextmanager
def asgi(app: Any, behind: Behind) -> Iterator[Client]:
    """Serve an application by uvicorn."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", port=0, ws="websockets-sansio"))

    async def serve(listening: Callable[[int], None]) -> None:
        serving = asyncio.create_task(server.serve([listener := socket.create_server(("127.0.0.1", 0))]))
        listening(listener.getsockname()[1])
        await serving

    def stop() -> None:
        server.should_exit = True

    with _in_thread(serve, stop, behind) as client:
        yield client


@contextmanager
def aiohttp(app: web.Application, behind: Behind) -> Iterator[Client]:
    """Serve an application of aiohttp."""
    stopped = threading.Event()

    async def serve(listening: Callable[[int], None]) -> None:
        runner = web.AppRunner(app, shutdown_timeout=0.0, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        listening(runner.addresses[0][1])
        await asyncio.to_thread(stopped.wait)
        await runner.cleanup()

    with _in_thread(serve, stopped.set, behind) as client:
        yield client


class Quiet(WSGIRequestHandler):
    """Writes no log."""

    protocol_version = "HTTP/1.1"  # whose streams have parts

    def log(self, *told: object) -> None:
        pass


@contextmanager
def wsgi(app: Any, behind: Behind) -> Iterator[Client]:
    """Serve an application by the server of Werkzeug, a thread for each connection."""
    server: Any = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    server.daemon_threads = False  # so that its end is that of all requests
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Client(server.server_port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        behind.close_of_threads()


@contextmanager
def _in_thread(
    serve: Callable[[Callable[[int], None]], Awaitable[None]], stop: Callable[[], None], behind: Behind
) -> Iterator[Client]:
    """Run a server on a loop of its own; close what was made when it has ended."""
    ports = list[int]()
    listens = threading.Event()

    def listening(port: int) -> None:
        ports.append(port)
        listens.set()

    async def main() -> None:
        await serve(listening)
        await behind.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert listens.wait(DEADLINE)
        yield Client(*ports)
    finally:
        stop()
        thread.join()
