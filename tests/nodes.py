"""One server process over TCP, for tests that kill it, stop it, and start it again at the same address."""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.ports import free_port
from tests.servers import START_TIMEOUT, DidNotStart


class Node:
    """A server on a loopback port of its own. Its directory and its options outlive it: `start` brings it back."""

    def __init__(self, binary: str, directory: str, options: Sequence[str], password: str = "") -> None:
        self.port, self.password = free_port(), password
        self.name = f"127.0.0.1:{self.port}"
        user = f":{password}@" if password else ""
        self.url = f"redis://{user}{self.name}/0"
        self.directory = directory
        self._log = f"{directory}/{self.port}.log"
        own = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", directory, "--save", ""]
        self._command = [binary, *own, "--dbfilename", f"{self.port}.rdb", *options]
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, *options: str) -> None:
        """Further options, from the next start on; of two the last one counts."""
        self._command += options

    def start(self) -> None:
        """Run it, and wait until it says something to a PING: perhaps that it is loading, or wants a password."""
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)
        await_fact(self._answers, f"{self._command[0]} at {self.name}")

    def kill(self) -> None:
        """End it at once, as a machine ends that loses its power. What is dead already stays so."""
        if (process := self._process) is not None and process.poll() is None:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """Let it stand still: it accepts connections, or the kernel does, and answers nothing."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """End a `stop`."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def client(self) -> redis.Redis:
        """A new client, which retries nothing; close it, or use it in a `with`."""
        return redis.Redis.from_url(self.url, decode_responses=True, retry=Retry(NoBackoff(), 0))

    def ask(self, *command: str | int) -> object:
        """The answer to one command."""
        with self.client() as client:
            answer: object = client.execute_command(*command)
            return answer

    def info(self, *command: str | int) -> dict[str, Any]:
        """The answer to a command that answers lines of `name:value`; redis-py has parsed some of them, not all."""
        told = self.ask(*command)
        if isinstance(told, dict):
            return told
        return dict(line.split(":", 1) for line in str(told).splitlines() if ":" in line)

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            with open(self._log, encoding="utf-8", errors="replace") as log:
                raise DidNotStart(f"{self._command[0]}: {log.read()[-1000:]}")
        with socket.socket() as connection:
            connection.settimeout(1.0)
            try:
                connection.connect(("127.0.0.1", self.port))
                connection.sendall(b"PING\r\n")
                return bool(connection.recv(64))
            except OSError:
                return False


@contextlib.contextmanager
def node(binary: str, *options: str, password: str = "") -> Iterator[Node]:
    """One server with these options; if there is a password, one has to know it."""
    with directory() as folder, ExitStack() as stack:
        secret = ["--requirepass", password, "--masterauth", password] if password else []
        one = Node(binary, folder, [*options, *secret], password)
        stack.callback(one.kill)
        one.start()
        yield one


@contextlib.contextmanager
def directory() -> Iterator[str]:
    """A new directory with a short path, for the `with`."""
    with tempfile.TemporaryDirectory(prefix="bl-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield folder


def await_fact(fact: Callable[[], bool], what: str) -> None:
    """Return as soon as it is so; AssertionError where it never is. An error of a server means: not yet."""
    deadline = time.monotonic() + START_TIMEOUT
    while not _is_so(fact):
        if time.monotonic() > deadline:
            raise AssertionError(f"still not so after {START_TIMEOUT} s: {what}")
        time.sleep(0.01)


def _is_so(fact: Callable[[], bool]) -> bool:
    try:
        return fact()
    except (redis.RedisError, redis.exceptions.RedisClusterException):
        return False
