"""Where a scenario plays: a server, a network before it, and hosts."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.chaos.backend import Backend, backend
from tests.chaos.crew import Crew
from tests.chaos.task import Task
from tests.relay import Relay

ROUND_TRIP = 0.0005


@dataclass(slots=True)
class Stage:
    """One server that the hosts reach directly at `url`, or over the relay."""

    backend: Backend
    relay: Relay
    crew: Crew
    tasks: tuple[Task, ...] = ()
    """What the hosts are doing now."""


@contextmanager
def stage(binary: str, crew: Crew) -> Iterator[Stage]:
    """A new server of this binary, empty, and a network before it."""
    with ExitStack() as stack:
        server = stack.enter_context(backend(binary))
        yield Stage(server, stack.enter_context(Relay(server.url, ROUND_TRIP)), crew)
