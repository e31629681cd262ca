"""What a bucket might say, an event that counts, and the measure of the promise."""

import itertools
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest

from batchlimit.bucket.messages import Grant
from batchlimit.quota.failure_policy import CLOSED, FailurePolicy
from batchlimit.quota.overrides.code import Rank
from batchlimit.quota.overrides.known import OverridesCache
from batchlimit.quota.overrides.override import KeyRule
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.bucket_view import InstanceCount, KeySnapshot
from batchlimit.reservoir.options import Instance, Options
from batchlimit.reservoir.reservoir import Reservoir

SECOND = 1_000_000
"""The bucket counts in microseconds."""


class Waking:
    """An event that counts how often it was set."""

    def __init__(self) -> None:
        self.set_times = 0

    def set(self) -> None:
        self.set_times += 1


class Moody:
    """A sizer that wants nothing more than callers wait for, and fails while it is broken."""

    broken = False

    def want(self, usage: object) -> int:
        if self.broken:
            raise ZeroDivisionError
        return 0


class NoRules(OverridesCache):
    """Overrides that nobody sets, and at which nobody looks."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0, lambda: None)
        self.looks_at = math.inf

    def hear(self, told: int, now: float) -> None:
        pass


def made(
    quota: Quota | KeyRule,
    now: float = 0.0,
    *,
    since: float = 0.0,
    count: InstanceCount | None = None,
    policy: FailurePolicy = CLOSED,
    snapshot: KeySnapshot | None = None,
    rules: OverridesCache | None = None,
    **options: Any,
) -> Reservoir:
    """A reservoir of the instance `a`, for the key `key`."""
    instance = Instance("a", itertools.count(1), rules or NoRules(), count or InstanceCount())
    rule, rank = quota if isinstance(quota, KeyRule) else KeyRule(quota), Rank(options.get("revision", 0), since)
    return Reservoir(rule, instance, Options(**options), now, rank=rank, key="key", policy=policy, snapshot=snapshot)


ANSWER = Grant(
    granted=0, kept=0, starts_in=0.0, lease=1.0, retry_after=0.0, level=90, active_instances=1, epoch=7, version=1
)
"""What a rich bucket says to an ask for nothing."""


def about(value: Any) -> Any:
    """Equal but for the rounding of sums, and of clocks that count microseconds."""
    return pytest.approx(value, abs=4e-6)


def answer(granted: int = 0, **rest: Any) -> Grant:
    return ANSWER._replace(granted=granted, **rest)


def excess(admissions: Iterable[tuple[int, int]], rate: float, burst: int) -> float:
    """By how many tokens the worst of all windows exceeds burst + rate * t: the largest debt of a plain bucket.

    Of (instant in us, tokens), in order.
    """
    level, before, worst = float(burst), 0, 0.0
    for at, tokens in admissions:
        level = min(burst, level + (at - before) * rate / SECOND) - tokens
        before, worst = at, max(worst, -level)
    return worst


class KeyFigures(NamedTuple):
    """The first of the figures of a key, by name: what happened, and what is here."""

    admitted: int = 0
    refused: int = 0
    calls: int = 0
    fallback: int = 0
    losses: int = 0
    opened: int = 0
    held: int = 0
    waiting: int = 0
    owed: int = 0


def figures(reservoir: Reservoir) -> KeyFigures:
    return KeyFigures(*reservoir.state.figures()[: len(KeyFigures._fields)])
