"""A process with many live keys: how long newcomers take, and what else has to wait because of them."""

import gc
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from batchlimit import RateLimiter
from benchmarks.plenty import Plenty

_SAMPLE = 20_000
_HOT = [f"hot:{number}" for number in range(10)]
_PATIENCE = 120.0


class Times(NamedTuple):
    """Microseconds: of each first decision, by the wall and by this thread's processor time, without who else ran."""

    wall: Sequence[float]
    work: Sequence[float]


class Full(NamedTuple):
    """The garbage collector's full runs, in seconds, while it ran by itself."""

    lasted: list[float]
    filling: float


class Seen(NamedTuple):
    """All that is measured in a process with `keys` live keys."""

    per_key: float
    first: Times
    last: Times
    crowded: Times
    collections: Full
    collect_before: float
    collect_after: float
    alone: Sequence[float]
    beside: Sequence[float]
    control: Sequence[float]


class Collections:
    """Notes how long each full collection takes."""

    def __init__(self) -> None:
        self.lasted: list[float] = []
        self._begun = 0.0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] == 2:
            if phase == "start":
                self._begun = time.perf_counter()
            else:
                self.lasted.append(time.perf_counter() - self._begun)


def limiter_of(keys: int) -> RateLimiter:
    """Keeps so many keys for an hour."""
    return RateLimiter(Plenty(), "1000/s burst 1000", idle_after=3600.0, max_keys=keys)


def come_to_rest(limiter: RateLimiter) -> None:
    """Wait until nothing is held any more."""
    deadline = time.monotonic() + _PATIENCE
    while limiter._slots and time.monotonic() < deadline:
        time.sleep(0.05)


def crowd(keys: int, resident: Callable[[], int], seconds: float) -> Seen:
    """Fill a limiter with keys, each used once; then more come than there may be."""
    noted = Collections()
    with limiter_of(keys) as limiter:
        limiter.try_acquire("the first")
        before, collect_before = resident(), _collect()
        gc.callbacks.append(noted)
        begun = time.perf_counter()
        first = newcomers(limiter, 0, _SAMPLE)
        for number in range(_SAMPLE, keys - _SAMPLE):
            limiter.try_acquire(f"tenant:{number}")
        last = newcomers(limiter, keys - _SAMPLE, keys)
        full = Full(noted.lasted, time.perf_counter() - begun)
        gc.callbacks.remove(noted)
        come_to_rest(limiter)
        collect_after = _collect()
        per_key = (resident() - before) / keys
        crowded = newcomers(limiter, keys, keys + _SAMPLE)
        alone, beside, control = foreground(limiter, 2 * keys, seconds)
        return Seen(per_key, first, last, crowded, full, collect_before, collect_after, alone, beside, control)


def newcomers(limiter: RateLimiter, first: int, end: int) -> Times:
    """Use new keys once each."""
    wall, work = array("d"), array("d")
    for number in range(first, end):
        key, begun, worked = f"tenant:{number}", time.perf_counter_ns(), time.thread_time_ns()
        limiter.try_acquire(key)
        work.append((time.thread_time_ns() - worked) / 1000)
        wall.append((time.perf_counter_ns() - begun) / 1000)
    return Times(wall, work)


def foreground(limiter: RateLimiter, first: int, seconds: float) -> tuple[Sequence[float], ...]:
    """Microseconds of calls for other keys: alone, beside a thread of newcomers, and beside one that only counts."""
    number = first

    def come() -> None:
        nonlocal number
        number += 1
        limiter.try_acquire(f"tenant:{number}")

    return tuple(_hits(limiter, seconds, other) for other in (None, come, _count))


def _count() -> None:
    sum(range(1000))


def _hits(limiter: RateLimiter, seconds: float, other: Callable[[], None] | None) -> Sequence[float]:
    over = threading.Event()

    def work() -> None:
        while other is not None and not over.is_set():
            other()

    thread, taken = threading.Thread(target=work), array("d")
    thread.start()
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        for key in _HOT:
            begun = time.perf_counter_ns()
            limiter.try_acquire(key)
            taken.append((time.perf_counter_ns() - begun) / 1000)
    over.set()
    thread.join()
    return taken


def _collect() -> float:
    """Seconds that a full collection takes; the second one, so that nothing is left to free."""
    gc.collect()
    begun = time.perf_counter()
    gc.collect()
    return time.perf_counter() - begun
