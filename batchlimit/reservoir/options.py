"""The options of a limiter, checked once, and the instance that has them: what all of its keys share."""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from batchlimit.base.redaction import shown
from batchlimit.base.setting import whole
from batchlimit.bucket.fair_share import LONGEST
from batchlimit.quota.failure_policy import FailureSource, failure_rule
from batchlimit.quota.grammar import LARGEST_WEIGHT
from batchlimit.quota.overrides.known import OverridesCache
from batchlimit.quota.overrides.override import ModeSource, check_line, mode_rule
from batchlimit.reservoir.bucket_view import FILLS, Fill, InstanceCount
from batchlimit.reservoir.sizing import DEFAULT_SIZER, BatchSizer

LONGEST_CALL = 30
"""Seconds. No limiter waits longer for its store: more is meant in milliseconds."""


def check_seconds(name: str, value: object, *, may_be_0: bool = False, most: float = sys.float_info.max) -> None:
    """Raise TypeError or ValueError unless the value is a time above 0 (seconds), or from 0 on, that is finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds, not {shown(value)}")
    if not 0.0 <= value <= most or (value == 0.0 and not may_be_0):  # an int may be more than any float
        least, end = "at least" if may_be_0 else "more than", f"at most {most}" if most == LONGEST_CALL else "finite"
        raise ValueError(f"{name} must be {least} 0 seconds, and {end}, not {shown(value)}")


def check_pause(seconds: float, why: object) -> float:
    """Return for how long a pause lasts: ten years at most."""
    check_seconds("seconds", seconds)
    check_line("why", why)
    return min(float(seconds), LONGEST / 1e6)


def check_turn(wait: float, spacing: float, longest: float) -> tuple[float, float, float]:
    """Return the numbers of a turn: ten years at most. The first two may be 0."""
    for name, value in (("wait", wait), ("spacing", spacing), ("longest", longest)):
        check_seconds(name, value, may_be_0=name != "longest")
    most = LONGEST / 1e6
    return min(float(wait), most), min(float(spacing), most), min(float(longest), most)


@dataclass(frozen=True, slots=True)
class Options:
    """The keyword arguments of a limiter that concern its keys; RateLimiter says what they mean.

    Raises TypeError or ValueError for a wrong one.
    """

    sizer: BatchSizer = DEFAULT_SIZER
    idle_after: float = 10.0
    """Seconds."""
    fill: Fill = "share"
    weight: int = 1
    max_keys: int = 100_000
    deadline: float = 0.05
    """Seconds."""
    on_failure: FailureSource = "closed"
    revision: int = 0
    mode: ModeSource = "enforce"

    def as_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of a limiter with these options."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __post_init__(self) -> None:
        failure_rule(self.on_failure)
        mode_rule(self.mode)
        check_seconds("deadline", self.deadline, most=LONGEST_CALL)
        if isinstance(self.sizer, type):
            raise TypeError(f"sizer must be made, like FixedBatch(100): {self.sizer.__name__} is the class")
        if not isinstance(self.sizer, BatchSizer):
            raise TypeError(f"sizer must say how much to want, like TimeBatch(), not {shown(self.sizer)}")
        if isinstance(self.idle_after, bool) or not isinstance(self.idle_after, int | float):
            raise TypeError(f"idle_after must be a number of seconds, not {shown(self.idle_after)}")
        if not self.idle_after >= 0.0:
            raise ValueError(f"idle_after must be at least 0 seconds, not {shown(self.idle_after)}")
        if self.fill not in FILLS:
            raise ValueError(f"fill must be 'full', 'share' or 'empty', not {shown(self.fill)}")
        whole("weight", self.weight, most=LARGEST_WEIGHT)
        whole("max_keys", self.max_keys, most=math.inf)
        whole("revision", self.revision, 0, 2**53 - 1)


@dataclass(frozen=True, slots=True)
class Instance:
    """What all keys of one limiter instance share in front of the store."""

    name: str
    numbers: Iterator[int]
    """The next number of an Ask or GiveBack. One sequence serves all keys, so a key that comes back repeats none."""
    rules: OverridesCache
    """The overrides that it knows."""
    count: InstanceCount = field(default_factory=InstanceCount)
