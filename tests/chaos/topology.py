"""Scenarios of several servers: a cluster that loses a node, and sentinels that fail over."""

from collections.abc import Iterator
from contextlib import contextmanager

from batchlimit.stores.client.scripts import bucket_name
from benchmarks.audited_fleet.plan import Api
from tests.chaos.crew import Crew
from tests.chaos.fault import Fault, process_killed
from tests.chaos.scenario import ANEW, BURST, RATE, Scenario
from tests.chaos.stage import Stage
from tests.servers import valkey_binary
from tests.topologies import Cluster, Watched, cluster, sentinel

HANDOVER = BURST + RATE * 0.25
"""When sentinels name the new primary its buckets have filled up, and know nothing of what was admitted meanwhile. Then
processes leave the old one: within 0.25 s, for a sentinel tells the others within 0.1 s, and a call takes two
deadlines."""


class Clustered(Stage):
    """Three nodes, each with a part of the keys."""

    def __init__(self, crew: Crew, nodes: Cluster) -> None:
        super().__init__(crew, nodes.url)
        self.cluster = nodes


class Guarded(Stage):
    """A primary and a replica, and sentinels that agree on which is which."""

    def __init__(self, crew: Crew, nodes: Watched) -> None:
        super().__init__(crew, nodes.url)
        self.watched = nodes

    def url_of(self, process: int, relayed: bool) -> str:
        """Each process asks another of the sentinels first."""
        return self.watched.url_by(process % len(self.watched.sentinels))


@contextmanager
def clustered(crew: Crew) -> Iterator[Stage]:
    with cluster(valkey_binary()) as nodes:
        yield Clustered(crew, nodes)


@contextmanager
def guarded(crew: Crew) -> Iterator[Stage]:
    with sentinel(valkey_binary(), down_after=1000) as nodes:
        yield Guarded(crew, nodes)


@contextmanager
def node_lost(stage: Clustered) -> Iterator[None]:
    """The node of the first key is killed, and comes back empty."""
    node = stage.cluster.owner(bucket_name(stage.tasks[0].prefix, "key-0"))
    node.kill()
    yield
    node.start()


@contextmanager
def failed_over(stage: Guarded) -> Iterator[None]:
    """The primary is killed, and the replica takes over, with what it had heard by then."""
    before = stage.watched.primary
    before.kill()
    yield
    stage.watched.await_other_primary(before)


def handed_over(*how: str) -> Fault:
    """The replica takes over from a primary that lives, and one process is replaced by a new one.

    The new process connects to the new primary, whatever the others do.
    """

    @contextmanager
    def fault(stage: Guarded) -> Iterator[None]:
        stage.watched.fail_over(*how)
        with process_killed(stage):
            yield

    return fault


TOPOLOGIES = (
    Scenario("a node of a cluster is killed", node_lost, place=clustered, allowed=ANEW),
    Scenario("sentinels fail over", failed_over, place=guarded, allowed=BURST),
    Scenario("a planned failover", handed_over(), place=guarded, seconds=3.0, allowed=HANDOVER),
    Scenario("a planned failover", handed_over(), place=guarded, seconds=3.0, allowed=HANDOVER, api=Api.ASYNC),
    Scenario("a coordinated failover", handed_over("COORDINATED"), place=guarded, seconds=3.0),
)
