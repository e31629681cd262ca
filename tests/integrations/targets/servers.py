"""The servers of the matrix, how each is started, and how it is asked."""

import contextlib
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import NamedTuple

from tests.integrations.targets.apps import ROUTES
from tests.integrations.targets.requests import Written
from tests.integrations.worker_commands import DEADLINE, GUNICORN, ROOT, working
from tests.ports import free_port

_APPS = "tests.integrations.targets.apps"
_SERVE = ["tests.integrations.targets.serve"]
_UVICORN = ["uvicorn", "--fd={fd}", "--log-level=critical", "--lifespan=off", f"{_APPS}:asgi"]
_GUNICORN = [*GUNICORN, "--bind=fd://{fd}", "--workers=1", "--log-level=critical"]
_GRANIAN = ["granian", "--host=127.0.0.1", "--port={port}", "--no-ws", "--log-level=critical"]
PLAIN: dict[str, list[str]] = {
    "uvicorn-h11": [*_UVICORN, "--http=h11"],
    "uvicorn-httptools": [*_UVICORN, "--http=httptools"],
    "hypercorn": ["hypercorn", "--bind=fd://{fd}", "--log-level=critical", f"{_APPS}:asgi"],
    "daphne": ["daphne", "--fd={fd}", "--verbosity=0", f"{_APPS}:asgi"],
    "granian": [*_GRANIAN, "--interface=asgi", f"{_APPS}:asgi"],
    "gunicorn-asgi": [*_GUNICORN, "--worker-class=asgi", f"{_APPS}:asgi"],
    "gunicorn": [*_GUNICORN, "--worker-class=gthread", "--threads=4", f"{_APPS}:wsgi"],
    "waitress": [*_SERVE, "waitress", "{fd}"],
    "wsgiref": [*_SERVE, "wsgiref", "{fd}"],
    "granian-wsgi": [*_GRANIAN, "--interface=wsgi", f"{_APPS}:wsgi"],
    "aiohttp": [*_SERVE, "aiohttp", "{fd}"],
}
WSGI_SERVERS = ("gunicorn", "waitress", "wsgiref", "granian-wsgi")
_MOUNTED: dict[str, list[str]] = {
    **{server: ["--root-path=/v1"] for server in ("uvicorn-h11", "uvicorn-httptools", "hypercorn", "daphne")},
    "gunicorn-asgi": ["--root-path=/v1"],
    **{server: ["--url-path-prefix=/v1"] for server in ("granian", "granian-wsgi")},
    "waitress": ["/v1"],
    "gunicorn": [],
}
"""What more is said to a server of an application that is mounted; gunicorn takes it from the environment."""


class Setup(NamedTuple):
    """A server, and whether it serves an application that is mounted at /v1."""

    server: str
    is_mounted: bool

    def __str__(self) -> str:
        return f"{self.server}{'-mounted' if self.is_mounted else ''}"


SETUPS = [Setup(server, False) for server in PLAIN] + [Setup(server, True) for server in _MOUNTED]


class Asked:
    """A server that is asked over sockets."""

    def __init__(self, port: int, face: str) -> None:
        self._port, self._face = port, face

    def served(self, asked: Written) -> list[str]:
        """The routes that served a request; a server that closes the connection served none."""
        return routes_of(self._told(asked))

    def status(self, asked: Written) -> int:
        return (statuses_of(self._told(asked)) or [0])[0]

    def ways_round(self, requests: Iterator[Written]) -> list[tuple[Written, str]]:
        """Send them, several at once; return those that a route behind a rule has served."""
        with ThreadPoolExecutor(4) as pool:
            asked = list(requests)
            answers = pool.map(self.served, asked)
            found = [[(each, route) for route in routes] for each, routes in zip(asked, answers, strict=True)]
            return [way for way in chain.from_iterable(found) if way[1] in ROUTES]

    def told(self, request: bytes) -> bytes:
        """All that is answered to these bytes until the server closes the connection; `%face` in them is the face."""
        told = b""
        with (
            contextlib.suppress(ConnectionError),
            socket.create_connection(("127.0.0.1", self._port), timeout=DEADLINE) as connection,
        ):
            connection.sendall(request.replace(b"%face", self._face.encode()))
            while part := connection.recv(65536):
                told += part
        return told

    def _told(self, asked: Written) -> bytes:
        head = f"{asked.method} {asked.target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-Face: %face\r\n"
        return self.told(f"{head}{asked.fields}\r\n".encode())


def routes_of(told: bytes) -> list[str]:
    return [each.decode() for each in re.findall(rb"(?i)\r\nx-served: (\w+)", told)]


def statuses_of(told: bytes) -> list[int]:
    return [int(each) for each in re.findall(rb"HTTP/1\.[01] (\d{3})", told)]


@contextlib.contextmanager
def serving(setup: Setup, quota: str = "0/s") -> Iterator[int]:
    """Start a server, of which each route has rules of this quota; yield its port."""
    port = free_port()
    command = [each.replace("{port}", str(port)) for each in PLAIN[setup.server]]
    more = {"MOUNT": "", "QUOTA": quota}
    if setup.is_mounted:
        command += _MOUNTED[setup.server]
        more |= {"MOUNT": "/v1"} | ({"SCRIPT_NAME": "/v1"} if setup.server == "gunicorn" else {})
    with working(command, ROOT, **more) as crew:
        if "granian" in setup.server:
            crew.port = port  # it takes no socket, and listens late
            crew.reached("/")
        yield crew.port
