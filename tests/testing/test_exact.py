"""In frozen time a bucket admits what a plain token bucket admits, whoever asks: by arithmetic that shares no code."""

import asyncio
import threading
from fractions import Fraction
from itertools import cycle
from math import ceil
from random import Random

import pytest

from batchlimit import AsyncRateLimiter, Quota, RateLimiter
from batchlimit.testing import frozen_limits
from tests.depth import depth

URL = "redis://192.0.2.1:1/0"
"""Nobody is there."""
QUOTAS = (
    "1/s", "5/s", "10/s", "50/s", "100/s", "3/s burst 1", "10/s burst 2", "100/s burst 4",
    "5/minute", "7/minute burst 3", "10/hour",
    "5/minute; 100/day", "50/s; 60/minute", "10/s burst 20; 100/hour burst 15", "90/s; 30/minute burst 40; 500/day",
    *depth((), ("1000/s", "100/s burst 250", "100/minute", "2000/day")),
)  # fmt: skip
INSTANCES = depth((1, 3), (1, 2, 3, 8))
THREADS = 4


class Plain:
    """A token bucket in exact numbers."""

    def __init__(self, text: str) -> None:
        parts = Quota.parse(text).bandwidths
        self.rates, self.bursts = [Fraction(each.rate) for each in parts], [each.burst for each in parts]
        self.levels = [Fraction(burst) for burst in self.bursts]

    def advance(self, seconds: Fraction | int) -> None:
        flowed = [level + rate * seconds for level, rate in zip(self.levels, self.rates, strict=True)]
        self.levels = [min(level, Fraction(burst)) for level, burst in zip(flowed, self.bursts, strict=True)]

    def take(self, cost: int) -> bool:
        if fits := min(self.levels) >= cost:
            self.levels = [level - cost for level in self.levels]
        return fits

    @property
    def windows(self) -> list[int]:
        """In how many seconds each burst is refilled."""
        return [
            max(1, ceil(burst / rate - Fraction(1, 10**9))) for burst, rate in zip(self.bursts, self.rates, strict=True)
        ]

    @property
    def whole(self) -> int:
        return int(min(self.levels))

    def clear_of_whole(self) -> bool:
        """Whether no level is so close to a whole number that microseconds decide."""
        return all(
            level == burst or abs(level - round(level)) > rate / 20_000
            for level, rate, burst in zip(self.levels, self.rates, self.bursts, strict=True)
        )


@pytest.mark.parametrize("instances", INSTANCES)
@pytest.mark.parametrize("quota", QUOTAS)
def test_one_call_after_the_other_is_admitted_as_by_a_plain_bucket(quota: str, instances: int) -> None:
    for seed in range(depth(1, 40)):
        chance, plain = Random(seed), Plain(quota)
        with frozen_limits() as limits:
            limiters = [RateLimiter.from_url(URL, quota) for _ in range(instances)]
            for _ in range(4):
                burst = Quota.parse(quota).largest_cost
                for _ in range(burst + 5):
                    cost = chance.choice([1, 1, 1, 1, min(burst, 2)])
                    expected = plain.take(cost)
                    limiter = chance.choice(limiters)
                    assert limiter.try_acquire("ann", cost) == expected, (seed, cost)
                decisions = [limiter.decide("ann", burst) for limiter in limiters] if plain.whole < burst else []
                assert not any(decisions)
                seconds = chance.choice([1, 7, 61, 3601]) * Fraction(chance.randrange(100, 900), 1000)
                plain.advance(seconds)
                limits.advance(float(seconds))
                while not plain.clear_of_whole():
                    plain.advance(Fraction(3, 10_000))
                    limits.advance(0.0003)


@pytest.mark.parametrize("instances", INSTANCES)
@pytest.mark.parametrize("quota", QUOTAS)
def test_threads_together_are_admitted_as_by_a_plain_bucket(quota: str, instances: int) -> None:
    burst = Quota.parse(quota).largest_cost
    with frozen_limits():
        limiters = [RateLimiter.from_url(URL, quota) for _ in range(instances)]
        admitted: list[bool] = []

        def work(number: int) -> None:
            which = cycle(limiters[number % instances :] + limiters[: number % instances])
            admitted.extend([next(which).try_acquire("ann") for _ in range(burst // THREADS + 2)])

        threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert admitted.count(True) == burst


@pytest.mark.parametrize("instances", INSTANCES)
@pytest.mark.parametrize("quota", QUOTAS)
def test_tasks_together_are_admitted_as_by_a_plain_bucket(quota: str, instances: int) -> None:
    burst = Quota.parse(quota).largest_cost

    async def story() -> int:
        limiters = [AsyncRateLimiter.from_url(URL, quota) for _ in range(instances)]
        calls = [limiters[number % instances].try_acquire("ann") for number in range(burst + 7)]
        return sum(await asyncio.gather(*calls))

    with frozen_limits():
        assert asyncio.run(story()) == burst


@pytest.mark.parametrize("quota", ["5/s", "100/s", "5/minute", "5/minute; 100/day"])
def test_a_decision_tells_what_remains(quota: str) -> None:
    burst = Quota.parse(quota).largest_cost
    with frozen_limits():
        limiter = RateLimiter.from_url(URL, quota)
        assert [limiter.decide("ann").remaining for _ in range(burst)] == list(range(burst - 1, -1, -1))
        assert not limiter.decide("ann").remaining
