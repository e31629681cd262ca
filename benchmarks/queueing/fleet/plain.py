"""The plainest simulation of a fleet: real limiters, real tasks, an event loop whose clock leaps. It checks the other.

    python -m benchmarks.queueing.fleet.plain N LOAD [SECONDS [APART [SEED]]]

N limiters before 10 slots of 50 ms: the answers in time of each 20 s over what the slots can serve. With APART the
limiters start within so many seconds, as processes do, at an instant of the day that depends on SEED.
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

    def __init__(self, law: Callable[[], Law], limiters: int, load: float, seed: int, apart: float = 0.0) -> None:
        loop, random = asyncio.get_running_loop(), Random(f"starts {seed}")
        self._start = loop.time()
        of_day = random.uniform(0, 1000) if apart else 0.0
        self._limiters = [
            AsyncConcurrencyLimiter(
                law(), queue=Queue(100, max_wait=0.5), clock=lambda: int((loop.time() + of_day) * 1e9)
            )
            for _ in range(limiters)
        ]
        self._starts = [self._start + random.uniform(0, apart) for _ in range(limiters)]
        self._slots = asyncio.Semaphore(_SLOTS)
        self._random = Random(f"plain {seed}")
        self._rate = load * _SLOTS / _SERVICE
        self._in_time: Counter[int] = Counter()

    async def run(self, seconds: float) -> list[float]:
        """Return, for each 20 s, answers in time over capacity."""
        loop = asyncio.get_running_loop()
        calls = set()
        while loop.time() < self._start + seconds:
            await asyncio.sleep(self._random.expovariate(self._rate))
            place = self._random.randrange(len(self._limiters))
            if loop.time() < self._starts[place]:
                continue
            call = loop.create_task(self._call(self._limiters[place]))
            calls.add(call)
            call.add_done_callback(calls.discard)
        await asyncio.gather(*calls)
        for each in self._limiters:
            await each.close()
        return [self._in_time[part] * _SERVICE / _SLOTS / _SLICE for part in range(int(seconds / _SLICE))]

    async def _call(self, limiter: AsyncConcurrencyLimiter) -> None:
        came = asyncio.get_running_loop().time()
        work = _SERVICE * self._random.uniform(0.5, 1.5)
        try:
            async with limiter.acquire(), self._slots:
                await asyncio.sleep(work)
        except ConcurrencyLimited:
            return
        if asyncio.get_running_loop().time() - came <= _DEADLINE:
            self._in_time[int((came - self._start) / _SLICE)] += 1


def simulate(
    law: Callable[[], Law], limiters: int, load: float, seconds: float, seed: int = 0, apart: float = 0.0
) -> list[float]:
    """Run in virtual time."""

    async def run() -> list[float]:
        return await Fleet(law, limiters, load, seed, apart).run(seconds)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(run())


if __name__ == "__main__":
    count, load, *rest = sys.argv[1:]
    seconds, apart, seed = (*map(float, rest), *(120.0, 0.0, 0.0)[len(rest) :])
    for share in simulate(Knee, int(count), float(load), seconds, int(seed), apart):
        print(f"{share:.2f}", end=" ", flush=True)
    print()
