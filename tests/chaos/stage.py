"""Where a scenario plays: a store that can be ruined, and processes."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.crew import Crew
from tests.chaos.task import Task
from tests.nodes import Node, node
from tests.relay import Relay
from tests.servers import valkey_binary

ROUND_TRIP = 0.0005


class Stage:
    """Processes, what they are doing now, and where their store is."""

    def __init__(self, crew: Crew, url: str) -> None:
        self.crew = crew
        self.url = url
        self.relayed_url = url
        """The same over a network that can be ruined."""
        self.tasks: tuple[Task, ...] = ()

    def url_of(self, process: int, relayed: bool) -> str:
        """Where this process finds the store."""
        return self.relayed_url if relayed else self.url


class Single(Stage):
    """One server, and a relay before it."""

    def __init__(self, crew: Crew, server: Node, relay: Relay) -> None:
        super().__init__(crew, server.url)
        self.server, self.relay, self.relayed_url = server, relay, relay.url


@contextmanager
def single(crew: Crew, binary: str = "") -> Iterator[Single]:
    """A new server, empty: of this binary, or the Valkey that comes with the tests."""
    # Some are to be told to sleep; and a script is busy after a tenth of a second, not after five.
    options = "--enable-debug-command", "yes", "--lua-time-limit", "100"
    with node(binary or valkey_binary(), *options) as server, Relay(server.url, ROUND_TRIP) as relay:
        yield Single(crew, server, relay)
