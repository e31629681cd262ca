"""Real servers that start several workers, around `worker_app`: how each is started, asked and ended."""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.listening import listening

ROOT = Path(__file__).parents[2]
DEADLINE = 100.0
GUNICORN = ("gunicorn", "--timeout", "0", "--graceful-timeout", "5", "--no-control-socket")


class Crew:
    """A server with workers, on a port of its own. It listens from the start: clients wait for the first worker."""

    def __init__(self, port: int, process: subprocess.Popen[str]) -> None:
        self.port, self.process = port, process

    def get(self, path: str) -> tuple[int, Any]:
        """The status, and what the worker said of itself, or None; over a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"Connection": "close"})
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read()) if reply.status == 200 else None

    def session(self, path: str, count: int) -> Iterator[int]:
        """The statuses of some requests over one connection, which is one worker's."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)) as connection:
            for _ in range(count):
                connection.request("GET", path)
                reply = connection.getresponse()
                reply.read()
                yield reply.status

    @contextlib.contextmanager
    def asked(self, path: str) -> Iterator[None]:
        """Ask, and have no answer: it may never come."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
            yield

    def reached(self, path: str) -> tuple[int, Any]:
        """Like `get`, and anew while a server that reloads refuses the connection, or drops it before an answer."""
        until = time.monotonic() + DEADLINE
        while True:
            try:
                return self.get(path)
            except ConnectionError:  # RemoteDisconnected is one
                if time.monotonic() > until:
                    raise

    def listens(self) -> bool:
        """Whether it does, where it was not given a socket."""
        assert self.process.poll() is None, "the server did not start"
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE).close()
            return True
        return False

    def says(self, word: str) -> None:
        """Wait for a line of its log that has the word."""
        assert self.process.stdout is not None
        assert any(word in line for line in self.process.stdout), f"the server ended and never said {word!r}"


@contextlib.contextmanager
def working(command: list[str], folder: Path, **environment: str) -> Iterator[Crew]:
    """Run a module of Python; {fd} among its arguments is the socket that it listens on."""
    with listening() as listener:
        fd = listener.fileno()
        process = subprocess.Popen(
            [sys.executable, "-m", *(each.format(fd=fd) for each in command)],
            cwd=folder,
            env=os.environ | environment | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"},
            pass_fds=[fd],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        port = listener.getsockname()[1]
    try:
        yield Crew(port, process)
    finally:
        process.terminate()
        try:
            said, _ = process.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
        sys.stdout.write(said)  # shown if the test fails
