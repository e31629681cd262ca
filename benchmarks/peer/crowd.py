"""Tasks that call as fast as they can, on one event loop."""

import asyncio
import math
import time
from dataclasses import dataclass
from itertools import repeat

from benchmarks.peer.awaited import CROWDED
from benchmarks.peer.contender import AwaitedCall, Terms
from benchmarks.peer.tally import LOOK, Ready, Tally, adapted

_ROUND = 0.02
"""Seconds within which every task has had its turn, at the most: the last one is to end in time too."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """As many tasks as there are callers, for so many seconds."""

    who: str
    terms: Terms
    seconds: float

    def __call__(self, ready: Ready) -> Tally:
        return asyncio.run(self._run(ready))

    async def _run(self, ready: Ready) -> Tally:
        async with CROWDED[self.who].open(self.terms) as line:
            calls, first = [line() for _ in range(self.terms.callers)], Tally()
            await _calls(calls[0], 1, first)  # connects
            first.begin(math.inf)
            begin = ready()
            return first.merge(await asyncio.gather(*(self._call(call, begin) for call in calls)))

    async def _call(self, call: AwaitedCall, begin: float) -> Tally:
        tally, times, look = Tally(), 1, min(LOOK, _ROUND / self.terms.callers)
        while time.monotonic() < begin:
            times = adapted(times, await _calls(call, times, tally), look)
        tally.begin(time.monotonic())
        while not tally.decisions or time.monotonic() < begin + self.seconds:
            times = adapted(times, await _calls(call, times, tally), look)
        return tally


async def _calls(call: AwaitedCall, times: int, tally: Tally) -> float:
    """Await so many answers, then let others have their turn; what it took without that, in seconds."""
    function, arguments = call
    admitted, before = 0, time.monotonic()
    for _ in repeat(None, times):
        admitted += await function(*arguments)
    after = time.monotonic()
    tally.add(before, times, admitted, after)
    await asyncio.sleep(0)
    return after - before
