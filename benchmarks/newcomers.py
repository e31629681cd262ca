"""A process with many live keys: how long newcomers take, and what else has to wait because of them."""

import gc
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from batchlimit import RateLimiter
from benchmarks.plenty import Plenty

_SAMPLE = 20_000
_LOT = 1000
_HOT = [f"hot:{number}" for number in range(10)]
_PATIENCE = 120.0
_COLLECTIONS = 7


class Times(NamedTuple):
    """Microseconds of first decisions: by the wall; and of our own work, without who else ran or collected garbage."""

    wall: "array[float]"
    work: "array[float]"


class Full(NamedTuple):
    """The garbage collector's full runs by itself, in seconds of processor time each, while a limiter was filled."""

    lasted: list[float]
    filling: float


class Seen(NamedTuple):
    """All that is measured in a process with `keys` live keys."""

    per_key: float
    first: Times
    last: Times
    crowded: Times
    roomy: Times
    collections: Full
    collect_before: float
    collect_after: float
    alone: Sequence[float]
    beside: Sequence[float]
    control: Sequence[float]


class Collector:
    """Notes the processor time of each full collection (s), and that of all collections by thread (ns)."""

    def __init__(self) -> None:
        self.lasted: list[float] = []
        self.worked: Counter[int] = Counter()
        self._begun = 0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._begun = time.thread_time_ns()
            return
        took = time.thread_time_ns() - self._begun
        self.worked[threading.get_ident()] += took
        if info["generation"] == 2:
            self.lasted.append(took / 1e9)


def limiter_of(keys: int) -> RateLimiter:
    """Keeps so many keys for an hour."""
    return RateLimiter(Plenty(), "1000/s burst 1000", idle_after=3600.0, max_keys=keys)


def come_to_rest(limiter: RateLimiter) -> None:
    """Wait until nothing is held any more."""
    deadline = time.monotonic() + _PATIENCE
    while limiter._entries and time.monotonic() < deadline:
        time.sleep(0.05)


def crowd(keys: int, resident: Callable[[], int], seconds: float) -> Seen:
    """Fill a limiter with keys, each used once; then more come than there may be."""
    collector = Collector()
    with limiter_of(keys) as limiter:
        limiter.try_acquire("the first")
        before, collect_before = resident(), _collect()
        gc.callbacks.append(collector)
        begun = time.perf_counter()
        first = newcomers(limiter, 0, _SAMPLE, collector)
        for number in range(_SAMPLE, keys - _SAMPLE):
            limiter.try_acquire(f"tenant:{number}")
        last = newcomers(limiter, keys - _SAMPLE, keys, collector)
        full = Full(list(collector.lasted), time.perf_counter() - begun)
        come_to_rest(limiter)
        collect_after = _collect()
        per_key = (resident() - before) / keys
        crowded, roomy = compared(limiter, keys, collector)
        gc.callbacks.remove(collector)
        alone, beside, control = foreground(limiter, 2 * keys, seconds)
        return Seen(per_key, first, last, crowded, roomy, full, collect_before, collect_after, alone, beside, control)


def newcomers(limiter: RateLimiter, first: int, end: int, collector: Collector) -> Times:
    """Use new keys once each."""
    wall, work, here = array("d"), array("d"), threading.get_ident()
    for number in range(first, end):
        key, begun, worked = f"tenant:{number}", time.perf_counter_ns(), time.thread_time_ns() - collector.worked[here]
        limiter.try_acquire(key)
        work.append((time.thread_time_ns() - collector.worked[here] - worked) / 1000)
        wall.append((time.perf_counter_ns() - begun) / 1000)
    return Times(wall, work)


def compared(limiter: RateLimiter, keys: int, collector: Collector) -> tuple[Times, Times]:
    """Newcomers for each of whom one has to leave, in turn with as many at a limiter that has room."""
    crowded, roomy = Times(array("d"), array("d")), Times(array("d"), array("d"))
    with limiter_of(keys) as other:
        for first in range(keys, keys + _SAMPLE, _LOT):
            for each, times in ((limiter, crowded), (other, roomy)):
                lot = newcomers(each, first, first + _LOT, collector)
                times.wall.extend(lot.wall)
                times.work.extend(lot.work)
    return crowded, roomy


def waking(keys: int) -> tuple[Times, Times]:
    """Asks for keys that were used just now, and for the same keys at rest."""
    collector = Collector()
    with limiter_of(2 * keys) as limiter:
        newcomers(limiter, 0, keys, collector)
        awake = newcomers(limiter, 0, keys, collector)
        come_to_rest(limiter)
        return awake, newcomers(limiter, 0, keys, collector)


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
    """Seconds of processor time that a full collection takes that finds nothing to free: the least of several."""
    gc.collect()
    return min(_collected() for _ in range(_COLLECTIONS))


def _collected() -> float:
    begun = time.thread_time()
    gc.collect()
    return time.thread_time() - begun
