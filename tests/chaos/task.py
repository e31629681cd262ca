"""A task for one process of the chaos runs, and its result."""

import os
from dataclasses import dataclass
from typing import Any

from batchlimit import Statistics
from benchmarks.audited_fleet.plan import Api

COSTS = (1, 1, 1, 1, 3)
"""Tokens a call, round and round."""


@dataclass(frozen=True, slots=True)
class Task:
    """Callers that call for keys in turn at an even pace, from `start` to `end` (monotonic clock, seconds).

    They end sooner as soon as there is a file `enough`.
    """

    url: str
    quota: str
    prefix: str
    keys: int
    callers: int
    rate: float
    """Calls/s of all its callers together."""
    start: float
    end: float
    enough: str
    api: Api
    options: tuple[tuple[str, Any], ...]
    """Further options of the limiter."""
    log: str
    """The file to write into."""
    kept: bool = False
    """Whether the limiter lives on for the next task that is like this one."""

    def is_over(self, now: float) -> bool:
        """Whether nobody is to call any more."""
        return now >= self.end or os.path.exists(self.enough)


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources that a process uses now."""

    threads: int
    tasks: int
    descriptors: int
    memory: int
    """Bytes in RAM."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What a process says after its task."""

    statistics: Statistics
    errors: dict[str, int]
    """By what they said: errors, other than StoreUnavailable, that ended a caller."""
    usage: Usage
    stalled: float
    """For how long its process stood still at the most, as a Witness says (s)."""
