"""How long a call takes from the instant at which it is due, at a rate that does not wait for answers.

Each thread has its own schedule. A thread that waits for a slow answer is late for its next calls, and their lateness
counts. A call starts when it is due or when the call before it ends, whichever is later. Its latency is the time from
when it was due to its end. How late the harness itself wakes is measured apart.
"""

import math
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.peer.contender import Terms
from benchmarks.peer.load import Caller, in_threads
from benchmarks.peer.tally import Ready, Tally
from benchmarks.peer.threaded import CONTENDERS

PERCENTILES = (0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.99, 100.0)


@dataclass(slots=True)
class Waits:
    """Seconds: from due to done, and by how much the harness woke too late; and the decisions themselves."""

    took: "array[float]"
    late: "array[float]"
    tally: Tally


@dataclass(frozen=True, slots=True)
class Punctual:
    """Threads that together make `rate` calls/s, each at its own instant.

    Those of the first `warm_up` seconds are not timed: what adapts to a demand has to see it first.
    """

    who: str
    terms: Terms
    seconds: float
    rate: float
    warm_up: float

    def __call__(self, ready: Ready) -> Waits:
        with CONTENDERS[self.who].open(self.terms) as line:
            waits = Waits(array("d"), array("d"), Tally())
            for each in in_threads(line, self.terms, ready, self._call):
                waits.took += each.took
                waits.late += each.late
                waits.tally.merge([each.tally])
            return waits

    def _call(self, caller: Caller, begin: float) -> Waits:
        number, call, tally = caller
        waits, gap = Waits(array("d"), array("d"), tally), self.terms.callers / self.rate
        first = begin + self.warm_up
        last = first + self.seconds
        due, done, end = begin + gap * number / self.terms.callers, 0.0, 0.0
        while due < last and done < last + self.seconds:
            if (wait := due - time.monotonic()) > 0:
                time.sleep(wait)
            woken, took = time.monotonic(), tally.call(call, 1)
            late = woken - max(due, done)
            done, end = woken + took, max(due, end) + took
            if due >= first:
                waits.late.append(late)
                waits.took.append(end - due)
            due += gap
        return waits


def percentile(ranked: Sequence[float], percent: float) -> float:
    """Return what so many percent of the sorted numbers do not exceed; NaN where there are none."""
    if not ranked:
        return math.nan
    return ranked[min(len(ranked) - 1, int(len(ranked) * percent / 100))]
