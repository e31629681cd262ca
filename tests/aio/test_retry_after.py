"""A refusal never says that a caller may come back before a token can be there, from the first one on.

In virtual time, beside a plain bucket that sees the same admissions.
"""

import asyncio

import pytest

from batchlimit import AsyncRateLimiter, Quota
from batchlimit.stores import MemoryStore
from tests.aio.loop import virtual_loop
from tests.aio.stage import KEY

_ROUNDING = 1e-4


class PlainBucket:
    def __init__(self, quota: Quota) -> None:
        self._quota, self._level, self._at = quota, float(quota.burst), virtual_loop().time()

    def take(self) -> None:
        now = virtual_loop().time()
        self._level = min(self._quota.burst, self._level + (now - self._at) * self._quota.rate) - 1
        self._at = now

    @property
    def next_at(self) -> float:
        return self._at + (1 - self._level) / self._quota.rate


@pytest.mark.parametrize("every", [0.003, 0.05])
@pytest.mark.parametrize("quota", ["10/day", "10/minute", "2/s", "4/s burst 1", "10/s burst 2", "100/s", "5/s; 20/day"])
async def test_who_comes_back_when_told_is_never_too_early_for_any_token(quota: str, every: float) -> None:
    bands = Quota.parse(quota).bandwidths
    limiter = AsyncRateLimiter(MemoryStore(virtual_loop().time), quota, clock=virtual_loop().time)
    plain = [PlainBucket(Quota(each.rate, each.burst)) for each in bands]
    refusals = 0
    for _ in range(400):
        decision = await limiter.decide(KEY)
        if decision.allowed:
            for each in plain:
                each.take()
        else:
            refusals += 1
            told = virtual_loop().time() + decision.retry_after
            assert told >= max(each.next_at for each in plain) - _ROUNDING
            await asyncio.sleep(every)
    assert refusals > 30
    await limiter.close()
