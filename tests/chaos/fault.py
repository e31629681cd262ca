"""What can befall a store, the network before it, and the hosts: each a context, within which it is so."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import redis

from tests.chaos.stage import Single, Stage
from tests.nodes import Node
from tests.relay import Relay

Fault = Callable[[Any], AbstractContextManager[None]]
"""What is called with the Stage that it needs."""


@contextmanager
def nothing(_stage: Stage) -> Iterator[None]:
    yield


def network(change: Callable[[Relay], None]) -> Fault:
    """A fault of the relay."""

    @contextmanager
    def fault(stage: Single) -> Iterator[None]:
        change(stage.relay)
        yield
        stage.relay.restore()

    return fault


# The server


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


def told(*words: str) -> Fault:
    """A command that changes something once."""

    @contextmanager
    def fault(stage: Single) -> Iterator[None]:
        stage.server.ask(*words)
        yield

    return fault


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


# The hosts


@contextmanager
def host_killed(stage: Stage) -> Iterator[None]:
    """The last host is killed, and another takes its place at once."""
    last = stage.tasks[-1]
    stage.crew.replace(len(stage.tasks) - 1, replace(last, start=time.monotonic(), log=f"{last.log}-again"))
    yield


@contextmanager
def hosts_stopped(stage: Stage) -> Iterator[None]:
    """Half of the hosts are stopped where they stand, past the end of their leases."""
    stopped = range(0, len(stage.tasks), 2)
    for host in stopped:
        stage.crew.signal(host, signal.SIGSTOP)
    yield
    for host in stopped:
        stage.crew.signal(host, signal.SIGCONT)
