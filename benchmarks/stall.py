"""How long an event loop stands still because of the limiter, with the server 50 ms away.

In one loop, in turn: the limiter on a real server; the limiter on a store that only sleeps, so that no client has a
part in it; and calls that wait as often, and do nothing else. Server and relay are processes of their own.
"""

import asyncio
import secrets
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import NamedTuple

from batchlimit import Quota
from batchlimit.bucket.messages import Ask, Grant
from batchlimit.stores import AsyncRedisStore, AsyncStore, MemoryStore
from batchlimit.stores.memory import AsyncMemoryStore
from benchmarks.audited_fleet.limiter import AsyncWatchedLimiter
from benchmarks.distance import distant
from benchmarks.figures import Figure
from benchmarks.heartbeat import CALLS, KEYS, TASKS, Laps, Seen, observe

_ROUND_TRIP = 0.05
_QUOTA = "40/s burst 40"  # each key: eight calls of ten are admitted


class Asleep(AsyncMemoryStore):
    """A store as far away, without the work of talking to it."""

    async def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        await asyncio.sleep(_ROUND_TRIP)
        return await super().take(key, quota, ask)


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


class Compared(NamedTuple):
    """The delays with the limiter, with the limiter on a store without a client, and without either."""

    real: Seen
    alone: Seen
    control: Seen

    def named(self) -> list[tuple[str, Seen]]:
        return [("", self.real), (", without a client", self.alone), (", without it", self.control)]


def stall(url: str, seconds: float, rounds: int) -> Iterator[Figure]:
    """The lateness of a heartbeat and the loop's uninterrupted work, and what of it the limiter causes."""
    laps, seen = Laps(), Compared(Seen(), Seen(), Seen())
    with (
        distant(url, _ROUND_TRIP) as far,
        asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(laps)) as runner,
    ):
        for _ in range(rounds):
            prefix = f"bench-{secrets.token_hex(4)}"
            runner.run(_limited(AsyncRedisStore.from_url(far, prefix=prefix, deadline=1.0), seconds, laps, seen.real))
            runner.run(_limited(Asleep(MemoryStore()), seconds, laps, seen.alone))
            runner.run(observe(Trivial(seen.real.waited_share).try_acquire, seconds, laps, seen.control))
    yield from _lateness(seen, rounds)
    yield from _work(seen)


async def _limited(store: AsyncStore, seconds: float, laps: Laps, seen: Seen) -> None:
    async with aclosing(store), AsyncWatchedLimiter(store, _QUOTA, deadline=1.0) as limiter:

        async def try_acquire(key: str) -> bool:
            waited = limiter.tally.waited
            admitted = await limiter.try_acquire(key)
            seen.waited += limiter.tally.waited - waited
            return admitted

        await observe(try_acquire, seconds, laps, seen)
        seen.asks += limiter.statistics().calls


def _lateness(seen: Compared, rounds: int) -> Iterator[Figure]:
    real, alone, control = seen
    load = f"{CALLS:,} calls/s of {TASKS} tasks at {KEYS} keys of {_QUOTA}, {_ROUND_TRIP * 1000:g} ms away"
    notes = load, "", f"the calls only wait as often; {len(control.late):,} beats in {rounds} rounds, in turn"
    for share in (0.5, 0.99, 0.999):
        for (name, each), note in zip(seen.named(), notes, strict=True):
            yield Figure(f"stall: heartbeat late, p{100 * share:g}{name}", _ms(each.late, share), "ms", note=note)
        notes = "", "", ""
    came_to = f"{real.admitted / real.calls:.0%} admitted, {real.waited_share:.1%} waited, {real.asks:,} store calls"
    late = _ms(control.late, 0.999)
    yield Figure("stall: caused by the limiter, p99.9", _ms(real.late, 0.999) - late, "ms", at_most=1, note=came_to)
    yield Figure("stall: caused by the limiter without a client, p99.9", _ms(alone.late, 0.999) - late, "ms", at_most=1)


def _work(seen: Compared) -> Iterator[Figure]:
    note = "how long the loop works without a look at what is new"
    for share, of in ((0.999, "p99.9"), (1.0, "longest")):
        for name, each in seen.named():
            yield Figure(f"stall: uninterrupted work, {of}{name}", _ms(each.laps, share), "ms", note=note)
            note = ""
    for name, each in seen.named():
        cold = f"{KEYS} cold keys{', and connecting' * (not name)}" if each is not seen.control else ""
        yield Figure(f"stall: uninterrupted work, cold start{name}", 1000 * each.coldest, "ms", note=cold)


def _ms(seconds: Sequence[float], share: float) -> float:
    ranked = sorted(seconds)
    return 1000 * ranked[min(len(ranked) - 1, int(len(ranked) * share))]
