"""What callers did: decisions within the time that counts, and every admission for the audit."""

import math
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import repeat, starmap
from typing import Self

from batchlimit import Quota
from benchmarks.audited_fleet.audit import Admission, excess
from benchmarks.peer.contender import Call, Terms
from benchmarks.peer.meter import Counts

LOOK = 0.001
"""Seconds of calls between two looks at the clock: too rare to cost anything, often enough for the audit."""
_MOST = 4096

Ready = Callable[[], float]
"""Says that everything is set, and returns the instant (monotonic clock, one for all processes) of the beginning."""


@dataclass(slots=True)
class Tally:
    """Counts decisions since `begun`, logs all admissions; tallies of several callers add up."""

    begun: float = math.inf
    ended: float = -math.inf
    decisions: int = 0
    admitted: int = 0
    counts: Counts | None = None
    """What the server counted meanwhile, where somebody looked."""
    before: "array[float]" = field(default_factory=lambda: array("d"))
    after: "array[float]" = field(default_factory=lambda: array("d"))
    tokens: "array[int]" = field(default_factory=lambda: array("q"))

    def begin(self, now: float) -> None:
        """Count from now on; what was logged stays."""
        self.begun, self.decisions, self.admitted = now, 0, 0

    def add(self, before: float, decisions: int, admitted: int, after: float) -> None:
        """So many decisions, so many of them admissions, between two looks at the clock."""
        self.decisions += decisions
        self.admitted += admitted
        self.ended = after
        if admitted:
            self.before.append(before)
            self.after.append(after)
            self.tokens.append(admitted)

    def call(self, call: Call, times: int) -> float:
        """Call so often, and return what it took, in seconds."""
        before = time.monotonic()
        # In C but for the calls themselves: the cheapest loop there is, the same for all.
        admitted = sum(starmap(call.function, repeat(call.arguments, times)))
        after = time.monotonic()
        self.add(before, times, admitted, after)
        return after - before

    def merge(self, others: Iterable["Tally"]) -> Self:
        """Add what others did meanwhile."""
        for each in others:
            self.begun, self.ended = min(self.begun, each.begun), max(self.ended, each.ended)
            self.decisions += each.decisions
            self.admitted += each.admitted
            self.before += each.before
            self.after += each.after
            self.tokens += each.tokens
        return self

    @property
    def seconds(self) -> float:
        return self.ended - self.begun

    @property
    def span(self) -> float:
        """Seconds from the first admission on, warming up included."""
        return self.ended - min(self.before, default=self.begun)

    @property
    def admissions(self) -> Iterator[Admission]:
        return zip(self.before, self.after, self.tokens, strict=True)

    def excess(self, terms: Terms, keys: int = 1) -> float:
        """Tokens by which any window surely broke `burst + rate * t` of all keys together; 0.0 where none did."""
        return excess(self.admissions, Quota(keys * terms.rate, keys * terms.burst))

    def used(self, terms: Terms, keys: int = 1) -> float:
        """The admitted part of `burst + rate * t` of all keys, from the first admission on; NaN without any."""
        if not self.tokens:
            return math.nan
        return sum(self.tokens) / (keys * (terms.burst + terms.rate * self.span))


def adapted(times: int, took: float, look: float = LOOK) -> int:
    """How often to call before the next look at the clock, if so many calls just took so long (s)."""
    if took < look / 2:
        return min(2 * times, _MOST)
    return max(1, times // 2) if took > 4 * look else times
