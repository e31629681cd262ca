"""What happens to processes that share permits: to them, to the network before the store, and to the store."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.shared_permits.crew import Crew
from tests.nodes import Node, node
from tests.relay import Relay
from tests.servers import any_binary
from tests.topologies import Watched, sentinel

_ROUND_TRIP = 0.0
"""What the relay adds to a round trip while it does no harm (s)."""


@dataclass(frozen=True, slots=True)
class Single:
    """One server, and a relay before it for some of the processes."""

    server: Node
    relay: Relay
    relayed: str = "none"

    def url(self, number: int) -> str:
        """How a process of that number reaches it."""
        through = self.relayed == "all" or (self.relayed == "half" and number % 2 == 0)
        return self.relay.url if through else self.server.url


@dataclass(frozen=True, slots=True)
class Guarded:
    """A primary and a replica, and sentinels that agree on which is which."""

    watched: Watched

    def url(self, number: int) -> str:
        """By another of the sentinels each."""
        return self.watched.url_by(number % len(self.watched.sentinels))


@contextmanager
def single(relayed: str = "none") -> Iterator[Single]:
    with node(any_binary()) as server, Relay(server.url, _ROUND_TRIP) as relay:
        yield Single(server, relay, relayed)


@contextmanager
def guarded(_relayed: str) -> Iterator[Guarded]:
    with sentinel(any_binary()) as watched:
        yield Guarded(watched)


Make = Callable[[Crew, Any], AbstractContextManager[None]]
"""Makes a fault; its end ends it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One row of the audit.

    Attributes:
        name: What happens.
        make: Makes it happen.
        seconds: How long it lasts.
        keeps: Whether never more than N are held. If not, the store lost what it had lent: 2 N at most, for a lease.
        relayed: Which processes reach the store over the relay: "none", "half" or "all".
        lease: The lease (s).
        place: Where it happens.
        at_most: How long it may last, where nobody knows it in advance (s).
    """

    name: str
    make: Make
    seconds: float = 0.0
    keeps: bool = True
    relayed: str = "none"
    lease: float = 1.0
    place: Callable[[str], AbstractContextManager[Any]] = single
    at_most: float = 0.0

    def play(self, crew: Crew, stage: Any) -> tuple[int, int]:
        """Make it, and end it after its time; return when it began and ended (ns)."""
        began = time.monotonic_ns()
        with self.make(crew, stage):
            time.sleep(max(0.0, self.seconds - (time.monotonic_ns() - began) / 1e9))
        return began, time.monotonic_ns()


@contextmanager
def nothing(_crew: Crew, _stage: Single) -> Iterator[None]:
    yield


@contextmanager
def killed(crew: Crew, _stage: Single) -> Iterator[None]:
    """A process is killed; another one takes its place."""
    crew.hire(1)
    crew.kill(0)
    yield
    crew.begin(0.0)


@contextmanager
def stopped(crew: Crew, _stage: Single) -> Iterator[None]:
    """Two processes stand still."""
    for number in (0, 1):
        crew.signal(number, signal.SIGSTOP)
    yield
    for number in (0, 1):
        crew.signal(number, signal.SIGCONT)


@contextmanager
def deaf(_crew: Crew, stage: Single) -> Iterator[None]:
    """All subscriptions are cut, ten times: pushes are lost."""
    for _ in range(10):
        stage.server.ask("CLIENT", "KILL", "TYPE", "pubsub")
        time.sleep(0.1)
    yield


def told(*words: str) -> Make:
    """A command that changes something once."""

    @contextmanager
    def fault(_crew: Crew, stage: Single) -> Iterator[None]:
        stage.server.ask(*words)
        yield

    return fault


def network(change: Callable[[Relay], None]) -> Make:
    """A fault of the relay."""

    @contextmanager
    def fault(_crew: Crew, stage: Single) -> Iterator[None]:
        change(stage.relay)
        yield
        stage.relay.restore()

    return fault


@contextmanager
def paused(_crew: Crew, stage: Single) -> Iterator[None]:
    """The server stands still."""
    stage.server.stop()
    yield
    stage.server.go_on()


@contextmanager
def emptied(_crew: Crew, stage: Single) -> Iterator[None]:
    """The server is killed, and comes back empty."""
    stage.server.kill()
    yield
    stage.server.start()


@contextmanager
def failed_over(_crew: Crew, stage: Guarded) -> Iterator[None]:
    """The primary is killed; sentinels promote the replica."""
    before = stage.watched.primary
    before.kill()
    stage.watched.await_other_primary(before)
    yield


@contextmanager
def handed_over(_crew: Crew, stage: Guarded) -> Iterator[None]:
    """An operator has the replica promoted while the primary lives."""
    stage.watched.fail_over()
    yield


_FAULTS = [
    Fault("nothing", nothing, 1.0),
    Fault("a process is killed and replaced", killed),
    Fault("two processes stop for 1.6 leases", stopped, 1.6),
    Fault("SCRIPT FLUSH", told("SCRIPT", "FLUSH")),
    Fault("subscriptions are cut ten times in 1 s", deaf),
    Fault("all connections are reset", network(Relay.reset), relayed="all"),
    Fault("the network is cut for half a lease", network(Relay.drop), 0.5, relayed="all"),
    Fault("the network is cut for 1.5 leases", network(Relay.drop), 1.5, relayed="all"),
    Fault("half of the processes are cut off for 1.5 leases", network(Relay.drop), 1.5, relayed="half"),
    Fault("answers are lost for 1.5 leases", network(Relay.lose_replies), 1.5, relayed="all"),
    Fault("round trips of 100 ms for 2 s", network(lambda relay: relay.hold(0.1)), 2.0, relayed="all"),
    Fault("round trips of 400 ms for 2 s, past the deadline", network(lambda r: r.hold(0.4)), 2.0, relayed="all"),
    Fault("the server stands still for 0.3 s", paused, 0.3),
    Fault("the server stands still for 1.5 leases", paused, 1.5),
    Fault("the server is killed, and back and empty after 0.3 s", emptied, 0.3, keeps=False),
    Fault("the server is killed, and back and empty after 1.5 leases", emptied, 1.5, keeps=False),
    Fault("FLUSHALL", told("FLUSHALL"), keeps=False),
    Fault("the primary is killed, leases of 1 s", failed_over, keeps=False, place=guarded, at_most=9.0),
    Fault("the primary is killed, leases of 10 s", failed_over, keeps=False, lease=10.0, place=guarded, at_most=9.0),
    Fault("a planned failover, leases of 10 s", handed_over, keeps=False, lease=10.0, place=guarded, at_most=9.0),
]
FAULTS = {each.name: each for each in _FAULTS}
"""All faults by name. Leases are 1 s unless the name says otherwise."""
