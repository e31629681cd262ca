"""One trial: a fleet carries out a plan while the server counts, and a report says what happened."""

from contextlib import closing
from dataclasses import replace

from batchlimit.fleet.fleet import Fleet, Watcher
from batchlimit.fleet.plan import Plan
from batchlimit.fleet.report import Report, report
from batchlimit.fleet.server import Server
from batchlimit.stores.embedded import EmbeddedStore

# What no single server counts: a store within each process, and one of several servers. There the hosts' word counts.
_UNCOUNTED = ("memory", "redis+cluster", "redis+sentinel", "rediss+cluster", "rediss+sentinel")


def trial(plan: Plan, watch: Watcher) -> Report:
    """Run the plan; embedded:// is one server for all of its hosts, which ends with the trial.

    Raises FleetError if a host cannot go on, redis.RedisError or StoreUnavailable if there is no server, ValueError for
    a URL that makes no sense, ImportError if embedded:// lacks its package.
    """
    scheme = plan.url.partition("://")[0]
    if scheme == "embedded":
        with closing(EmbeddedStore()) as store:
            return trial(replace(plan, url=store.url), watch)
    if scheme in _UNCOUNTED:
        with Fleet(plan) as fleet:
            return report(plan, fleet.run(watch), None, scheme)
    with closing(Server(plan.url)) as server, Fleet(plan) as fleet:
        before = server.work()
        log = fleet.run(watch)
        return report(plan, log, server.work().since(before), server.name)
