"""Other ways to limit a fleet, to measure ours against: each a pure state machine, and a driver that runs it for real.

`RIVALS` names what a Plan takes as its limiter.
"""

from collections.abc import Callable

from batchlimit import FixedBatch, GrowingBatch, Quota
from batchlimit.cli.limiter import Limiter
from batchlimit.cli.plan import Plan
from benchmarks.rivals.batched import Batched
from benchmarks.rivals.bucket import PlainBucket
from benchmarks.rivals.driver import Driver
from benchmarks.rivals.errand import Course, Errand, Rival, Take, Tell
from benchmarks.rivals.per_call import PerCall
from benchmarks.rivals.reporter import Reporter
from benchmarks.rivals.store import PlainStore

__all__ = [
    "RIVALS",
    "Batched",
    "Course",
    "Driver",
    "Errand",
    "PerCall",
    "PlainBucket",
    "PlainStore",
    "Reporter",
    "Rival",
    "Take",
    "Tell",
]


def per_call(plan: Plan) -> Limiter:
    return _driven(PerCall(), plan)


def fixed_10(plan: Plan) -> Limiter:
    return _driven(Batched(FixedBatch(10), Quota.parse(plan.quota)), plan)


def fixed_100(plan: Plan) -> Limiter:
    return _driven(Batched(FixedBatch(100), Quota.parse(plan.quota)), plan)


def growing(plan: Plan) -> Limiter:
    return _driven(Batched(GrowingBatch(), Quota.parse(plan.quota)), plan)


def reporter(plan: Plan) -> Limiter:
    return _driven(Reporter(0.1), plan)


def _driven(rival: Rival, plan: Plan) -> Limiter:
    return Driver(rival, PlainStore(plan.url, f"{plan.prefix}:{plan.key}", Quota.parse(plan.quota)))


RIVALS: dict[str, Callable[[Plan], Limiter]] = {
    "per call": per_call,
    "fixed 10": fixed_10,
    "fixed 100": fixed_100,
    "growing": growing,
    "report every 100 ms": reporter,
}
