"""A server of the matrix as its tests see it: a process, and its clients."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.integrations.clients import DEADLINE, Clients
from tests.integrations.matrix.backing import VIRTUAL
from tests.sync.stage import ARRIVAL, until

ROOT = Path(__file__).parents[3]


class Served:
    """The server, in a process of its own that says its port and does what it is told, and clients of it."""

    def __init__(self, face: str, url: str, permits: int) -> None:
        self.face = face
        self.prefix = f"matrix-{face}-{os.urandom(6).hex()}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integrations.matrix.serve", face, url, self.prefix, f"{permits}"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        self._telling = threading.Lock()
        try:
            self.port = self._read()
        except BaseException:
            self.stop()
            raise
        self.clients = Clients(self.port)

    @property
    def client(self) -> httpx.Client:
        """This thread's."""
        return self.clients.own

    def get(self, path: str, user: str = "ann", **fields: str) -> httpx.Response:
        return self.client.get(path, headers={"x-user": user, **fields})

    def statuses(self, times: int, path: str, user: str = "ann", **fields: str) -> list[int]:
        return [self.get(path, user, **fields).status_code for _ in range(times)]

    def pass_by(self, seconds: float) -> None:
        self._tell("pass", seconds + ARRIVAL)

    def left(self, key: str) -> int:
        return self._tell("left", key)

    def until_left(self, key: str, wanted: int) -> None:
        """Wait for what happens in the server after the client has heard enough."""
        until(lambda: self.left(key) == wanted)

    def stop(self) -> None:
        """Stop as an operator does."""
        if self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            self._process.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def _tell(self, word: str, value: object) -> int:
        """Have it do something; return what it says."""
        assert self._process.stdin is not None
        with self._telling:
            self._process.stdin.write(f"{word} {value}\n")
            return self._read()

    def _read(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


@contextlib.contextmanager
def serving(face: str, url: str = VIRTUAL, permits: int = 0) -> Iterator[Served]:
    served = Served(face, url, permits)
    try:
        with served.clients:
            yield served
    finally:
        served.stop()
