"""Faults of a server. Each is a context manager that makes the fault."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import redis

from tests.chaos.stage import Single
from tests.nodes import Node


@contextmanager
def killed(stage: Single) -> Iterator[None]:
    """Killed, and started again empty."""
    stage.server.kill()
    yield
    stage.server.start()


@contextmanager
def emptied(stage: Single) -> Iterator[None]:
    """Killed, and there again at once, empty."""
    stage.server.kill()
    stage.server.start()
    yield


@contextmanager
def restarted(stage: Single) -> Iterator[None]:
    """Stopped in good order, and started again with all it knew."""
    with suppress(redis.ConnectionError):  # there is no better answer to this
        stage.server.ask("SHUTDOWN", "SAVE")
    stage.server.kill()
    yield
    stage.server.start()
    _forget(stage.server)


def _forget(server: Node) -> None:
    """Remove what was saved: who is killed later comes back empty."""
    with server.client() as client:
        folder: str = client.config_get("dir")["dir"]
    for saved in Path(folder).glob("*.rdb"):
        saved.unlink()


@contextmanager
def paused(stage: Single) -> Iterator[None]:
    """Stopped where it stands: connections are made, and nothing is answered; then it answers all of it."""
    stage.server.stop()
    yield
    stage.server.go_on()


@contextmanager
def stuck(stage: Single) -> Iterator[None]:
    """A script of somebody else that does not end: whoever asks hears that the server is busy."""

    def run() -> None:
        with suppress(redis.RedisError):  # it is killed in the end
            stage.server.ask("EVAL", "while true do end", 0)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stage.server.ask("SCRIPT", "KILL")
        thread.join()


@contextmanager
def asleep(stage: Single) -> Iterator[None]:
    """Busy with one long command, over and over."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            stage.server.ask("DEBUG", "SLEEP", "0.2")

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def full(stage: Single) -> Iterator[None]:
    """Out of memory: nothing may be written."""
    stage.server.ask("CONFIG", "SET", "maxmemory", 1)
    yield
    stage.server.ask("CONFIG", "SET", "maxmemory", 0)


@contextmanager
def read_only(stage: Single) -> Iterator[None]:
    """Made a replica, of a master that is not there: nothing may be written."""
    stage.server.ask("REPLICAOF", "127.0.0.1", 1)
    yield
    stage.server.ask("REPLICAOF", "NO", "ONE")
