"""Two instances share buckets that hardly refill: no token of them is lost, whatever becomes of the callers.

Each token is in the bucket, or spent by a caller who was told so. Nobody stalls and the store always answers.
"""

import asyncio
import contextlib
import random
from collections import Counter
from random import Random

import pytest

from batchlimit import AsyncRateLimiter, Quota, RateLimited
from batchlimit.batching import FixedBatch, TimeBatch
from batchlimit.stores import MemoryStore
from batchlimit.stores.memory import AsyncMemoryStore
from tests.aio.loop import run, virtual_loop
from tests.aio.stage import Stage, limiter_on
from tests.depth import depth

SEEDS = depth(75, 1500)
_EACH = 50
"""Seeds a test."""
_BURSTS = (20, 40)
_CALLERS = 60


class Story:
    """What callers of all kinds do to two limiters, in the time of the loop."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.burst = self.dice.choice(_BURSTS)
        self.travel = self.dice.choice([0.0, 0.0003, 0.02])
        self.largest = self.dice.choice([1, 3])
        self.store = MemoryStore(virtual_loop().time)
        self.limiters = [self._limiter(), self._limiter()]
        self.spent: Counter[str] = Counter()

    def _limiter(self) -> AsyncRateLimiter:
        stage = Stage(AsyncMemoryStore(self.store))
        stage.before = stage.after = stage.before_back = self._on_the_way
        sizer = self.dice.choice([FixedBatch(1), FixedBatch(4), TimeBatch()])
        return limiter_on(stage, Quota(self.burst / 86400, self.burst), sizer=sizer)

    async def _on_the_way(self) -> None:
        if self.travel:
            await asyncio.sleep(self.travel)

    async def play(self) -> None:
        calls = [asyncio.ensure_future(self._call()) for _ in range(_CALLERS)]
        for call in calls:
            cancelled_in = self.dice.choice([7.0, 7.0, 7.0, 4.0 * self.dice.random()])
            asyncio.get_running_loop().call_later(cancelled_in, call.cancel)
        await asyncio.gather(*calls, return_exceptions=True)
        assert [call.exception() for call in calls if not call.cancelled() and call.exception()] == []
        await asyncio.sleep(10.0)
        left = {key: self.store.peek(key, Quota(0.001, self.burst)).level for key in self.spent}
        for limiter in self.limiters:
            await limiter.close()
        assert left == {key: self.burst - spent for key, spent in self.spent.items()}

    async def _call(self) -> None:
        await asyncio.sleep(3.0 * self.dice.random())
        limiter = self.dice.choice(self.limiters)
        keys = self.dice.sample("abc", self.dice.randint(1, 3))
        costs = {key: self.dice.randint(1, self.largest) for key in keys}
        with contextlib.suppress(RateLimited):
            admitted = await self._ask(limiter, costs)
            self.spent.update(admitted)
            if self.dice.random() < 0.4:
                await asyncio.sleep(self.dice.random())
                for key, cost in admitted.items():
                    self.spent[key] -= cost
                    await limiter.refund(key, cost)

    async def _ask(self, limiter: AsyncRateLimiter, costs: dict[str, int]) -> dict[str, int]:
        """Return what was charged; RateLimited may say that nothing was."""
        how, timeout = self.dice.choice(["all", "decide all", "one", "try"]), self._patience()
        key, cost = next(iter(costs.items()))
        if how == "all":
            await limiter.acquire_all(costs, timeout=timeout)
            return costs
        if how == "decide all":
            return costs if all((await limiter.decide_all(costs)).values()) else {}
        if how == "try":
            return {key: cost} if await limiter.try_acquire(key, cost) else {}
        await limiter.acquire(key, cost, timeout=timeout)
        return {key: cost}

    def _patience(self) -> float | None:
        return self.dice.choice([0.0, self.dice.random(), 3.0 * self.dice.random(), None, None])


async def story(seed: int) -> None:
    random.seed(seed)  # the jitter of pauses, too
    await Story(seed).play()


@pytest.mark.parametrize("first", range(0, SEEDS, _EACH))
def test_no_token_is_lost_where_nobody_stalls(first: int) -> None:
    for seed in range(first, first + _EACH):
        run(lambda seed=seed: story(seed))  # type: ignore[misc]
