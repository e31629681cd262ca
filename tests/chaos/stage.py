"""Where a scenario plays: a store that can be ruined, and hosts."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.chaos.backend import Backend, backend, valkey
from tests.chaos.crew import Crew
from tests.chaos.task import Task
from tests.relay import Relay

ROUND_TRIP = 0.0005


class Stage:
    """Hosts, what they are doing now, and where their store is."""

    def __init__(self, crew: Crew, url: str) -> None:
        self.crew = crew
        self.url = url
        self.relayed_url = url
        """The same over a network that can be ruined."""
        self.tasks: tuple[Task, ...] = ()


class Single(Stage):
    """One server, and a relay before it."""

    def __init__(self, crew: Crew, server: Backend, relay: Relay) -> None:
        super().__init__(crew, server.url)
        self.backend, self.relay, self.relayed_url = server, relay, relay.url


@contextmanager
def single(crew: Crew, binary: str = "") -> Iterator[Single]:
    """A new server, empty: of this binary, or the one that comes with the tests."""
    with ExitStack() as stack:
        server = stack.enter_context(backend(binary or valkey()))
        yield Single(crew, server, stack.enter_context(Relay(server.url, ROUND_TRIP)))
