"""Other ways to limit a fleet, to measure ours against: each a pure state machine, and a driver that runs it for real.

`MACHINES` are the state machines by name, `RIVALS` what a Plan takes as its limiter by the same names.
"""

from collections.abc import Callable

from batchlimit import Quota
from batchlimit.batching import FixedBatch, GrowingBatch
from benchmarks.audited_fleet.limiter import Limiter
from benchmarks.audited_fleet.plan import Plan
from benchmarks.rivals.batched import Batched
from benchmarks.rivals.bucket import PlainBucket
from benchmarks.rivals.driver import Driver
from benchmarks.rivals.per_call import PerCall
from benchmarks.rivals.reporter import Reporter
from benchmarks.rivals.request import Course, Request, Rival, Take, Tell
from benchmarks.rivals.store import PlainStore

__all__ = [
    "MACHINES",
    "RIVALS",
    "Batched",
    "Course",
    "Driver",
    "PerCall",
    "PlainBucket",
    "PlainStore",
    "Reporter",
    "Request",
    "Rival",
    "Take",
    "Tell",
]


MACHINES: dict[str, Callable[[Quota], Rival]] = {
    "per call": lambda quota: PerCall(),
    "fixed 10": lambda quota: Batched(FixedBatch(10), quota),
    "fixed 100": lambda quota: Batched(FixedBatch(100), quota),
    "x1.5/x0.5": lambda quota: Batched(GrowingBatch(), quota),
    "report every 100 ms": lambda quota: Reporter(0.1),
}
"""Each rival's state machine, for one instance."""


def per_call(plan: Plan) -> Limiter:
    return _driven("per call", plan)


def fixed_10(plan: Plan) -> Limiter:
    return _driven("fixed 10", plan)


def fixed_100(plan: Plan) -> Limiter:
    return _driven("fixed 100", plan)


def growing(plan: Plan) -> Limiter:
    return _driven("x1.5/x0.5", plan)


def reporter(plan: Plan) -> Limiter:
    return _driven("report every 100 ms", plan)


def _driven(name: str, plan: Plan) -> Limiter:
    quota = Quota.parse(plan.quota)
    return Driver(MACHINES[name](quota), PlainStore(plan.url, f"{plan.prefix}:{plan.key}", quota))


# Functions of this module, so that another process finds them.
RIVALS: dict[str, Callable[[Plan], Limiter]] = dict(
    zip(MACHINES, (per_call, fixed_10, fixed_100, growing, reporter), strict=True)
)
