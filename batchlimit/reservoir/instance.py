"""One limiter instance as the buckets know it, and how many of its kind share their keys."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from batchlimit.overrides.overrides import NONE, InForce

_WINDOW = 60.0
"""Seconds. Within this time a key that few instances ask for must not hide the others; instances that left must go."""


class InstanceCount:
    """The most instances that were active at any one key within the last one or two minutes.

    One key knows only the instances that asked for it within a second. If each of four instances that ask rarely
    divided by that number while the store is away, each would admit the whole limit.
    """

    __slots__ = ("_before", "_now", "_since")

    def __init__(self) -> None:
        self._since = 0.0
        self._before = self._now = 0

    def __repr__(self) -> str:
        return f"<InstanceCount of {self.instances}>"

    @property
    def instances(self) -> int:
        """The number; 0: the store never told one."""
        return max(self._before, self._now)

    def learn(self, instances: int, now: float) -> None:
        """Take in what one key's bucket tells. Racing threads may lose one report, never the order of magnitude."""
        if now - self._since >= _WINDOW:
            self._before = self._now if now - self._since < 2 * _WINDOW else 0
            self._since, self._now = now, 0
        self._now = max(self._now, instances)


class Rules(Protocol):
    """The overrides that an instance knows; see overrides/known.py."""

    @property
    def in_force(self) -> InForce:
        """What counts now."""
        ...

    @property
    def looks_at(self) -> float:
        """From when on an answer is to tell the revision."""
        ...

    def hear(self, told: int, now: float) -> None:
        """Compare the revision that an answer told."""
        ...


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
    rules: Rules = field(default_factory=NoRules)
