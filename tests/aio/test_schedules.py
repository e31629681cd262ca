"""Hundreds of seeded schedules of callers who come, give up, are cancelled and learn of failures, in virtual time.

Each must end: the loop tells at once when all wait and nothing is planned. Nobody overtakes in line, the limiter's
figures are what its callers were told, one fetch is under way at a time, and the promise holds.
"""

import asyncio
import random
from random import Random

import pytest

from batchlimit import AsyncRateLimiter, LimiterClosed, Quota, RateLimited, StoreUnavailable
from batchlimit.batching import BatchSizer, FixedBatch, TimeBatch
from batchlimit.bucket.fair_share import ALPHA, LEASABLE
from tests.aio.loop import run, virtual_loop
from tests.aio.stage import KEY, Stage
from tests.depth import depth
from tests.reservoir.world import SECOND, excess

SEEDS = depth(150, 1000)
_EACH = 50
"""Seeds a test."""
_SECONDS = 3.0
_CALLERS = 40


class Schedule:
    """One story: what is drawn from the seed, and what its callers saw."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.quota = Quota(self.dice.choice([5.0, 50.0, 500.0]), self.dice.choice([1, 5, 50]))
        self.stage = Stage()
        self.stage.before = self.stage.after = self._travel
        self.stage.before_back = self._travel
        self.trouble = self.dice.choice([0.0, 0.0, 0.1, 0.5])
        sizers: list[BatchSizer] = [TimeBatch(), FixedBatch(1), FixedBatch(20)]
        self.limiter = AsyncRateLimiter(
            self.stage,
            self.quota,
            sizer=self.dice.choice(sizers),
            idle_after=(10.0, 0.0)[seed % 2],
            clock=virtual_loop().time,
        )
        self.refunds = self.dice.choice([0.0, 0.2])
        self.spent: list[tuple[int, int]] = []  # (instant in us, tokens)
        self.refused = self.refunded = 0
        self.line: list[int] = []  # who is in line or may be, in order of arrival
        self.overtaken: list[tuple[int, int]] = []

    async def _travel(self) -> None:
        await asyncio.sleep(self.dice.choice([0.0, 0.0, 0.001, 0.05, 0.3]))
        if self.dice.random() < self.trouble:
            raise StoreUnavailable("lost")

    async def play(self) -> None:
        callers = [asyncio.create_task(self._call(i)) for i in range(_CALLERS)]
        doom = [asyncio.create_task(self._cancel(each)) for each in callers if self.dice.random() < 0.2]
        if self.dice.random() < 0.3:
            await asyncio.sleep(self.dice.uniform(0.0, _SECONDS))
        else:
            await asyncio.wait(callers)
        await self.limiter.close()
        await asyncio.wait(callers + doom)

    async def _cancel(self, caller: "asyncio.Task[None]") -> None:
        await asyncio.sleep(self.dice.uniform(0.0, _SECONDS))
        caller.cancel()

    async def _call(self, i: int) -> None:
        cost = self.dice.randint(1, min(5, self.quota.burst))
        how = self.dice.choice(["try", "now", "soon", "patient", "patient", "decide"])
        await asyncio.sleep(self.dice.choice([0.0, self.dice.uniform(0.0, _SECONDS)]))
        self.line.append(i)
        try:
            admitted = await self._ask(how, cost)
        except LimiterClosed:
            return
        except StoreUnavailable:
            admitted = False
        finally:
            place = self.line.index(i)
            ahead = self.line[:place]
            self.line.remove(i)
        if not admitted:
            self.refused += cost
            return
        self.overtaken += [(i, other) for other in ahead]
        self.spent.append((round(virtual_loop().now * SECOND), cost))
        if self.dice.random() < self.refunds:
            await self._refund(cost)

    async def _ask(self, how: str, cost: int) -> bool:
        if how == "try":
            return await self.limiter.try_acquire(KEY, cost)
        if how == "decide":
            return (await self.limiter.decide(KEY, cost)).allowed
        try:
            patience = {"now": 0.0, "soon": self.dice.uniform(0.0, 1.0), "patient": None}[how]
            await self.limiter.acquire(KEY, cost, timeout=patience)
        except RateLimited:
            return False
        return True

    async def _refund(self, cost: int) -> None:
        self.refunded += cost
        try:
            await self.limiter.refund(KEY, cost)
        except (StoreUnavailable, LimiterClosed):
            pass


async def story(seed: int) -> None:
    random.seed(seed)  # the jitter of pauses, too
    schedule = Schedule(seed)
    await schedule.play()
    found = schedule.limiter.statistics()
    admitted = sum(tokens for _, tokens in schedule.spent)
    assert schedule.overtaken == [], f"seed {seed}: somebody was served before who came earlier"
    assert (found.admitted, found.refused) == (admitted, schedule.refused), f"seed {seed}: the figures are wrong"
    assert (found.waiting, found.held, found.keys) == (0, 0, 0), f"seed {seed}: something is left"
    assert schedule.stage.busiest <= 1, f"seed {seed}: two fetches at once"
    over = excess(schedule.spent, schedule.quota.rate, schedule.quota.burst)
    late = max((each.lease for each in schedule.stage.grants), default=0.0)  # after a spend
    allowed = schedule.quota.rate * late if ALPHA * schedule.quota.burst < LEASABLE else 0.0
    assert over < schedule.refunded + allowed + 0.001, f"seed {seed}: {over} tokens too many"
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"seed {seed}: these tasks are left: {left}"


@pytest.mark.usefixtures("without_breaker")
@pytest.mark.parametrize("first", range(0, SEEDS, _EACH))
def test_whatever_happens_everybody_is_answered_in_order(first: int) -> None:
    for seed in range(first, first + _EACH):
        run(lambda seed=seed: story(seed))  # type: ignore[misc]
