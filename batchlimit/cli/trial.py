"""One trial: a fleet carries out a plan while the server counts, and a report says what happened."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from batchlimit.cli.fleet import Fleet, Watcher
from batchlimit.cli.plan import Plan
from batchlimit.cli.report import Report, report
from batchlimit.cli.server import Server
from batchlimit.stores.embedded import EmbeddedStore

# What one counter cannot see: a store within the process, and a store of several servers.
_WITHOUT_SERVER = ("memory", "redis+cluster", "redis+sentinel", "rediss+cluster", "rediss+sentinel")


@contextmanager
def shared_url(url: str) -> Iterator[str]:
    """A URL that every process of this machine can use: where an embedded server listens, which ends with the block."""
    if not url.startswith("embedded://"):
        yield url
        return
    with closing(EmbeddedStore()) as store:
        yield store.url


def trial(plan: Plan, watch: Watcher) -> Report:
    """Run the plan. Raises FleetError if a host cannot go on, redis.RedisError if the server cannot be counted on."""
    scheme = plan.url.partition("://")[0]
    if scheme in _WITHOUT_SERVER:
        with Fleet(plan) as fleet:
            return report(plan, fleet.run(watch), None, scheme)
    with closing(Server(plan.url)) as server, Fleet(plan) as fleet:
        before = server.work()
        log = fleet.run(watch)
        return report(plan, log, server.work().since(before), server.name)
