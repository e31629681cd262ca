"""The plainest simulation of a fleet: real limiters, real tasks, an event loop whose clock leaps. It checks the other.

    python -m benchmarks.queueing.fleet.plain N LOAD [SECONDS]

N limiters before 10 slots of 50 ms: the answers in time of each 20 s over what the slots can serve.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from random import Random

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimited, Queue
from batchlimit.concurrency.law import Law
from batchlimit.concurrency.laws import Knee
from tests.aio.loop import VirtualLoop

_SLOTS, _SERVICE, _DEADLINE, _SLICE = 10, 0.05, 1.0, 20


class Fleet:
    """Callers come at random to one of the limiters, wait half a second at most, and hold a slot for their service."""

    def __init__(self, law: Callable[[], Law], limiters: int, load: float, seed: int, spread: float = 0.5) -> None:
        loop = asyncio.get_running_loop()
        self._start = loop.time()
        self._limiters = [
            AsyncConcurrencyLimiter(law(), queue=Queue(100, max_wait=0.5), clock=lambda: int(loop.time() * 1e9))
            for _ in range(limiters)
        ]
        self._slots = asyncio.Semaphore(_SLOTS)
        self._random, self._spread = Random(f"plain {seed}"), spread
        self._rate = load * _SLOTS / _SERVICE
        self._in_time: Counter[int] = Counter()

    async def run(self, seconds: float) -> list[float]:
        """Return, for each 20 s, answers in time over capacity."""
        loop = asyncio.get_running_loop()
        calls = set()
        while loop.time() < self._start + seconds:
            await asyncio.sleep(self._random.expovariate(self._rate))
            call = loop.create_task(self._call(self._random.choice(self._limiters)))
            calls.add(call)
            call.add_done_callback(calls.discard)
        await asyncio.gather(*calls)
        for each in self._limiters:
            await each.close()
        return [self._in_time[part] * _SERVICE / _SLOTS / _SLICE for part in range(int(seconds / _SLICE))]

    async def _call(self, limiter: AsyncConcurrencyLimiter) -> None:
        came = asyncio.get_running_loop().time()
        work = _SERVICE * self._random.uniform(1 - self._spread, 1 + self._spread)
        try:
            async with limiter.acquire(), self._slots:
                await asyncio.sleep(work)
        except ConcurrencyLimited:
            return
        if asyncio.get_running_loop().time() - came <= _DEADLINE:
            self._in_time[int((came - self._start) / _SLICE)] += 1


def simulate(law: Callable[[], Law], limiters: int, load: float, seconds: float, seed: int = 0) -> list[float]:
    """Run in virtual time."""

    async def run() -> list[float]:
        return await Fleet(law, limiters, load, seed).run(seconds)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(run())


if __name__ == "__main__":
    count, load, *rest = sys.argv[1:]
    for share in simulate(Knee, int(count), float(load), float(rest[0]) if rest else 120.0):
        print(f"{share:.2f}", end=" ", flush=True)
    print()
