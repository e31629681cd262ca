"""Faults of a network, of a server and its data, and of processes. Each is a context manager that makes the fault."""

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


def of_server(begin: Callable[[Node], object], end: Callable[[Node], object] = lambda _server: None) -> Fault:
    """A fault of the server, and what ends it."""

    @contextmanager
    def fault(stage: Single) -> Iterator[None]:
        begin(stage.server)
        yield
        end(stage.server)

    return fault


def told(*words: str) -> Fault:
    """A command that changes something once."""
    return of_server(lambda server: server.ask(*words))


def restart(server: Node) -> None:
    """Start it with all it knew, and remove what was saved: who is killed later comes back empty."""
    server.start()
    with server.client() as client:
        folder: str = client.config_get("dir")["dir"]
    for saved in Path(folder).glob("*.rdb"):
        saved.unlink()


def _room(server: Node, most: int) -> None:
    server.ask("CONFIG", "SET", "maxmemory", most)


def start_anew(server: Node) -> None:
    """Kill it, and have it there again at once, empty."""
    server.kill()
    server.start()


def stop_in_good_order(server: Node) -> None:
    with suppress(redis.ConnectionError):  # there is no better answer to this
        server.ask("SHUTDOWN", "SAVE")
    server.kill()


killed = of_server(Node.kill, Node.start)
"""Killed, and started again empty."""
emptied = of_server(start_anew)
restarted = of_server(stop_in_good_order, restart)
paused = of_server(Node.stop, Node.go_on)
"""Stopped where it stands: connections are made, and nothing is answered; then it answers all of it."""
full = of_server(
    lambda server: server.ask("CONFIG", "SET", "maxmemory", 1),
    lambda server: server.ask("CONFIG", "SET", "maxmemory", 0),
)
"""Out of memory: nothing may be written."""
read_only = of_server(
    lambda server: server.ask("REPLICAOF", "127.0.0.1", 1), lambda server: server.ask("REPLICAOF", "NO", "ONE")
)
"""Made a replica, of a master that is not there: nothing may be written."""


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
def again_and_again(work: Callable[[], object], every: float = 0.0) -> Iterator[None]:
    """Do this in the background, for the `with`, with pauses of so many seconds."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            work()
            over.wait(every)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def asleep(stage: Single) -> AbstractContextManager[None]:
    """Busy with one long command, over and over."""
    return again_and_again(lambda: stage.server.ask("DEBUG", "SLEEP", "0.2"))


@contextmanager
def process_killed(stage: Stage) -> Iterator[None]:
    """The last process is killed, and another takes its place at once."""
    last = stage.tasks[-1]
    stage.crew.replace(len(stage.tasks) - 1, replace(last, start=time.monotonic(), log=f"{last.log}-again"))
    yield


@contextmanager
def processes_stopped(stage: Stage) -> Iterator[None]:
    """Half of the processes are stopped where they stand, past the end of their leases."""
    stopped = range(0, len(stage.tasks), 2)
    for process in stopped:
        stage.crew.signal(process, signal.SIGSTOP)
    yield
    for process in stopped:
        stage.crew.signal(process, signal.SIGCONT)
