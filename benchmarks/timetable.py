"""Threads on a timetable: every call has an instant of its own, however slow the ones before it were."""

import gc
import time
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count, takewhile

RATE = 4000
"""How many calls all threads together make, in a second."""
THREADS = 8
_LEAD_IN = 0.75
"""So many seconds at the begin of a turn are not noted: a key that rested through the other's turn is cold, and how
much is asked for it learns with its second batch, a quarter of a second later."""
_START = 0.01
"""Seconds in which all threads are there."""


@dataclass(slots=True)
class Noted:
    """How long calls of one kind took, and how late they began (ns), in the same order."""

    took: "array[int]" = field(default_factory=lambda: array("q"))
    late: "array[int]" = field(default_factory=lambda: array("q"))


def turn(call: Callable[[str], object], seconds: float, noted: Noted) -> None:
    """Have the threads make such calls for so many seconds."""
    gc.collect()
    begin = time.perf_counter_ns() + round(_START * 1e9)
    with ThreadPoolExecutor(THREADS) as pool:
        for part in pool.map(lambda number: _one_of(THREADS, number, call, begin, seconds), range(THREADS)):
            noted.took.extend(part.took)
            noted.late.extend(part.late)


def _one_of(threads: int, number: int, call: Callable[[str], object], begin: int, seconds: float) -> Noted:
    """Make every n-th call of the timetable, from the one with this number on; a call that is late is made at once."""
    noted, now, end = Noted(), time.perf_counter_ns, begin + round(seconds * 1e9)
    lead_in, period = begin + round(_LEAD_IN * 1e9), threads * 1_000_000_000 // RATE
    for due in takewhile(lambda due: due < end, count(begin + number * period // threads, period)):
        while (early := due - now()) > 0:
            time.sleep(early / 1e9)
        before = now()
        call("hot")
        after = now()
        if due >= lead_in:
            noted.took.append(after - before)
            noted.late.append(before - due)
    return noted
