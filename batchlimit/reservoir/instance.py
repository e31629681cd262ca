"""One limiter instance as the buckets know it: what all of its keys share."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from batchlimit.quota.overrides.known import OverridesCache
from batchlimit.quota.overrides.overrides import NONE
from batchlimit.reservoir.bucket_view import InstanceCount


class NoRules:
    """Nobody sets any."""

    in_force, looks_at = NONE, math.inf

    def hear(self, told: int, now: float) -> None:
        """Do nothing: nobody would look."""


@dataclass(frozen=True, slots=True)
class Instance:
    """What all keys of one limiter instance share in front of the store."""

    name: str
    numbers: Iterator[int]
    """The next number of an Ask or GiveBack. One sequence serves all keys, so a key that comes back repeats none."""
    since: float
    """When the quotas of this instance were set (seconds, instance clock): of one rank the bucket obeys the younger."""
    count: InstanceCount = field(default_factory=InstanceCount)
    rules: OverridesCache | NoRules = field(default_factory=NoRules)
    """The overrides that it knows."""
