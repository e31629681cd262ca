"""The laws that are compared before one server, and the bounds that they are compared with."""

from collections.abc import Callable

from batchlimit.concurrency.law import Law
from batchlimit.concurrency.laws import Fixed
from benchmarks.queueing.fleet.scenario import FleetScenario
from benchmarks.queueing.laws import laws

CONTESTANTS: dict[str, Callable[[FleetScenario], Law]] = {
    "no limit": lambda scenario: Fixed(10**6),
    "fixed = 2c/N": lambda scenario: Fixed(max(1, 2 * scenario.workers // len(scenario.members))),
    **laws(200),
}
"""c, the workers, and N, the limiters, only a bound knows."""
