"""One trial: a fleet runs a plan, the server counts, and a report has the results."""

from contextlib import closing
from dataclasses import replace

from batchlimit.stores.embedded import EmbeddedStore
from benchmarks.audited_fleet.fleet import Fleet, Watcher
from benchmarks.audited_fleet.plan import Plan
from benchmarks.audited_fleet.report import Report, report
from benchmarks.audited_fleet.server import Server

# Schemes without one server to count: a store in each process, or several servers. The limiters' counts are used.
_UNCOUNTED = ("memory", "redis+cluster", "redis+sentinel", "rediss+cluster", "rediss+sentinel")


def trial(plan: Plan, watch: Watcher) -> Report:
    """Run the plan. embedded:// starts one server for all processes, which ends with the trial.

    Raises:
        FleetError: a process cannot go on.
        redis.RedisError, StoreUnavailable: there is no server.
        ValueError: the URL is wrong.
        ImportError: the package of embedded:// is missing.
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
