"""Faults of a network, of a server's data, and of processes. Each is a context manager that makes the fault."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from tests.chaos.stage import Single, Stage
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


def told(*words: str) -> Fault:
    """A command that changes something once."""

    @contextmanager
    def fault(stage: Single) -> Iterator[None]:
        stage.server.ask(*words)
        yield

    return fault


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
