"""How long an event loop stands still because of the limiter, with the server 50 ms away.

A heartbeat sleeps for a millisecond, over and over, and notes how late it wakes. Beside it tasks call the limiter, and
in turn with that, on the same schedule, something that only waits as often. The server and the relay that makes it
distant are processes of their own.
"""

import asyncio
import multiprocessing
import random
import secrets
import selectors
import time
from array import array
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from batchlimit.cli.limiter import AsyncWatchedLimiter
from batchlimit.cli.schedule import Stint
from benchmarks.figures import Figure
from tests.relay import Relay

_ROUND_TRIP = 0.05
_BEAT = 0.001
_TASKS = 64
_KEYS = 100
_CALLS = 5000  # a second, of all tasks together
_QUOTA = "40/s burst 40"  # each key: eight calls of ten are admitted
_WARM_UP = 1.0
"""Seconds before the heartbeat begins: connecting, and a hundred cold keys at once, are looked at apart."""


class Laps(selectors.DefaultSelector):
    """A loop's selector that notes how long the loop works between two looks at it: nothing else runs meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.laps = array("d")
        self._woke = time.perf_counter()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.laps.append(time.perf_counter() - self._woke)
        try:
            return super().select(timeout)
        finally:
            self._woke = time.perf_counter()

    def take(self) -> "array[float]":
        """Return what was noted since the last time."""
        laps, self.laps = self.laps, array("d")
        return laps


@dataclass(slots=True)
class Seen:
    """What the heartbeat and the selector saw beside one kind of call, in seconds, and what came of the calls."""

    late: "array[float]" = field(default_factory=lambda: array("d"))
    laps: "array[float]" = field(default_factory=lambda: array("d"))
    coldest: float = 0.0
    """The longest lap of the warm-up."""
    calls: int = 0
    admitted: int = 0
    waited: int = 0
    asks: int = 0


class Trivial:
    """What a limiter would be that cost nothing: it answers at once, but for every so many calls after a round trip."""

    def __init__(self, waiting: float) -> None:
        self._waiting = waiting
        self._due = 0.0

    async def try_acquire(self, key: str) -> bool:
        self._due += self._waiting
        if self._due >= 1.0:
            self._due -= 1.0
            await asyncio.sleep(_ROUND_TRIP)
        return True


def stall(url: str, seconds: float, rounds: int) -> Iterator[Figure]:
    """In one loop, round about: the limiter, then as much waiting without it."""
    laps = Laps()
    ours, control = Seen(), Seen()
    with _far(url) as far, asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(laps)) as runner:
        for _ in range(rounds):
            runner.run(_with_limiter(far, seconds, laps, ours))
            runner.run(_observe(Trivial(ours.waited / ours.calls).try_acquire, seconds, laps, control))
    yield from _lateness(ours, control, rounds)
    yield from _work(ours, control)


def _lateness(ours: Seen, control: Seen, rounds: int) -> Iterator[Figure]:
    note = f"{_CALLS:,} calls/s of {_TASKS} tasks at {_KEYS} keys of {_QUOTA}, {_ROUND_TRIP * 1000:g} ms away"
    also = f"the calls only wait; {len(control.late):,} beats in {rounds} rounds, in turn"
    for share in (0.5, 0.99, 0.999):
        yield Figure(f"stall: heartbeat late, p{100 * share:g}", _ms(ours.late, share), "ms", note=note)
        yield Figure(f"stall: heartbeat late without it, p{100 * share:g}", _ms(control.late, share), "ms", note=also)
        note = also = ""
    caused = _ms(ours.late, 0.999) - _ms(control.late, 0.999)
    note = (
        f"{ours.admitted / ours.calls:.0%} admitted, {ours.waited / ours.calls:.1%} waited, {ours.asks:,} store calls"
    )
    yield Figure("stall: caused by the limiter, p99.9", caused, "ms", at_most=1, note=note)


def _work(ours: Seen, control: Seen) -> Iterator[Figure]:
    note = "how long the loop works without looking for what is new, redis-py's part included"
    for share, name in ((0.999, "p99.9"), (1.0, "longest")):
        yield Figure(f"stall: uninterrupted work, {name}", _ms(ours.laps, share), "ms", note=note)
        yield Figure(f"stall: uninterrupted work without it, {name}", _ms(control.laps, share), "ms")
        note = ""
    note = f"{_KEYS} cold keys, and connecting"
    yield Figure("stall: uninterrupted work, longest of a cold start", ours.coldest * 1000, "ms", note=note)


def _ms(seconds: Sequence[float], share: float) -> float:
    ranked = sorted(seconds)
    return 1000 * ranked[min(len(ranked) - 1, int(len(ranked) * share))]


async def _with_limiter(url: str, seconds: float, laps: Laps, seen: Seen) -> None:
    async with AsyncWatchedLimiter.from_url(url, _QUOTA, prefix=f"bench-{secrets.token_hex(4)}") as limiter:

        async def try_acquire(key: str) -> bool:
            waited = limiter.tally.waited
            admitted = await limiter.try_acquire(key)
            seen.waited += limiter.tally.waited - waited
            return admitted

        await _observe(try_acquire, seconds, laps, seen)
        seen.asks += limiter.statistics().calls


async def _observe(call: Callable[[str], Awaitable[bool]], seconds: float, laps: Laps, seen: Seen) -> None:
    begin = time.monotonic()
    end = begin + _WARM_UP + seconds
    stints = [Stint(begin, end, _CALLS / _TASKS, number / _TASKS) for number in range(_TASKS)]
    callers = [asyncio.create_task(_keep_up(call, stint, number, seen)) for number, stint in enumerate(stints)]
    await asyncio.sleep(_WARM_UP)
    seen.coldest = max(seen.coldest, *laps.take())
    await _beat(end, seen.late)
    seen.laps.extend(laps.take())
    await asyncio.gather(*callers)


async def _keep_up(call: Callable[[str], Awaitable[bool]], stint: Stint, number: int, seen: Seen) -> None:
    dice = random.Random(number)
    while (now := time.monotonic()) < stint.end:
        for _ in range(stint.take_due(now)):
            admitted = await call(f"tenant:{dice.randrange(_KEYS)}")
            seen.calls += 1
            seen.admitted += admitted  # in a line of its own: others count while this one waits
        await asyncio.sleep(stint.pause(now))


async def _beat(end: float, late: "array[float]") -> None:
    while (before := time.monotonic()) < end:
        await asyncio.sleep(_BEAT)
        late.append(time.monotonic() - before - _BEAT)


@contextmanager
def _far(url: str) -> Iterator[str]:
    """The server at `url`, a round trip away by a relay in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_relay, args=(theirs, url), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours.recv()
    finally:
        ours.close()
        process.join()


def _relay(link: Connection, url: str) -> None:
    with Relay(url, _ROUND_TRIP) as relay:
        link.send(relay.url)
        link.poll(None)  # until its other end is closed
