"""Threads that call: as fast as they can, or as often as they are told to."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from benchmarks.audited_fleet.caller import TICK
from benchmarks.peer.contender import Call, Line, Terms
from benchmarks.peer.meter import Meter
from benchmarks.peer.pinned import pinned
from benchmarks.peer.tally import Ready, Tally, adapted
from benchmarks.peer.threaded import CONTENDERS

Done = TypeVar("Done")

_AT_ONCE = 16
"""Calls between two looks at the clock, at the most, of who lags: few enough to end in time."""
_PATIENCE = 60.0
"""Seconds until threads that are not ready hang."""


class Caller(NamedTuple):
    """One thread: its number, what it calls, and its tally, in which the call that connected is logged already."""

    number: int
    call: Call
    tally: Tally


@dataclass(frozen=True, slots=True)
class Hammer:
    """Threads that call as fast as they can for so many seconds, on one processor if `pin`."""

    who: str
    terms: Terms
    seconds: float
    pin: bool = False

    def __call__(self, ready: Ready) -> Tally:
        with pinned(self.pin), CONTENDERS[self.who].open(self.terms) as line:
            return _metered(line, self.terms, ready, self._call)

    def _call(self, caller: Caller, begin: float) -> Tally:
        _, call, tally = caller
        times = 1
        while time.monotonic() < begin:
            times = adapted(times, tally.call(call, times))
        tally.begin(time.monotonic())
        while not tally.decisions or time.monotonic() < begin + self.seconds:
            times = adapted(times, tally.call(call, times))
        return tally


@dataclass(frozen=True, slots=True)
class Pace:
    """Threads that together make `rate` calls/s as they fall due; who lags calls at once."""

    who: str
    terms: Terms
    seconds: float
    rate: float

    def __call__(self, ready: Ready) -> Tally:
        with CONTENDERS[self.who].open(self.terms) as line:
            return _metered(line, self.terms, ready, self._call)

    def _call(self, caller: Caller, begin: float) -> Tally:
        number, call, tally = caller
        rate, share, made = self.rate / self.terms.callers, number / self.terms.callers, 0
        time.sleep(max(0.0, begin - time.monotonic()))
        tally.begin(begin)
        while (now := time.monotonic()) < begin + self.seconds or not tally.decisions:
            due = min(_AT_ONCE, int((now - begin) * rate + share) - made)
            made += due
            if due:
                tally.call(call, due)
            else:
                time.sleep(TICK)
        return tally


def _metered(line: Line, terms: Terms, ready: Ready, work: Callable[[Caller, float], Tally]) -> Tally:
    """Add up what the threads do, and what the server counts meanwhile: without connecting and closing."""
    with Meter(terms.url) as meter:

        def begin() -> float:
            meter.begin()
            return ready()

        tally = Tally().merge(in_threads(line, terms, begin, work))
        tally.counts = meter.counts()
    return tally


def in_threads(line: Line, terms: Terms, ready: Ready, work: Callable[[Caller, float], Done]) -> list[Done]:
    """Have a thread for each caller connect, wait for the others, and work from one instant on; what each came to."""
    all_set, start = threading.Barrier(terms.callers + 1, timeout=_PATIENCE), Future[float]()

    def run(number: int) -> Done:
        caller = Caller(number, line(), Tally())
        caller.tally.call(caller.call, 1)
        all_set.wait()
        return work(caller, start.result(_PATIENCE))

    with ThreadPoolExecutor(terms.callers) as pool:
        running = [pool.submit(_or_abort, all_set, run, number) for number in range(terms.callers)]
        try:
            all_set.wait()
            start.set_result(ready())
        except threading.BrokenBarrierError:
            start.cancel()  # one of them failed, and says so below
        return [each.result() for each in running]


def _or_abort(barrier: threading.Barrier, run: Callable[[int], Done], number: int) -> Done:
    """Run; who cannot come to the barrier keeps nobody waiting there."""
    try:
        return run(number)
    except BaseException:
        barrier.abort()
        raise
