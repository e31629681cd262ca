"""The laws that are compared, and the bounds that they are compared with."""

from collections.abc import Callable

from batchlimit.concurrency.law import Law
from batchlimit.concurrency.laws import Fixed
from benchmarks.queueing.laws import laws
from benchmarks.queueing.scenario import Scenario

BOUNDS: dict[str, Callable[[Scenario], Law]] = {
    "no limit": lambda scenario: Fixed(10**9),
    "fixed = c": lambda scenario: Fixed(scenario.workers),
    "fixed = 2c": lambda scenario: Fixed(2 * scenario.workers),
}
"""What no law needs to know: c, the number of workers at first."""

LAWS: dict[str, Callable[[Scenario], Law]] = {**laws(100)}
CONTESTANTS = {**BOUNDS, **LAWS}
