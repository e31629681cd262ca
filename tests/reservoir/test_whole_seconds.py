"""A Retry-After is kept, and is no second longer than the true wait rounded up, if the process is alone."""

from random import Random

import pytest

from batchlimit.base.decision import whole_seconds
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.sizing import DEFAULT_SIZER
from tests.depth import depth
from tests.reservoir.alone import Alone, costs, pauses

QUOTAS = (
    "1/s", "2/s", "10/s", "3/s burst 1", "10/s burst 2", "1/3s",
    "5/minute", "7/minute burst 2", "1/minute", "10/hour", "100/day",
    "5/minute; 100/day", "1/s burst 3; 20/minute", "10/s burst 20; 100/hour",
)  # fmt: skip
PART = 2
"""Costs are at most this part of the burst. Where more is asked for, tokens that were spent and not yet reported may
delay it: the caller is told the latest time."""
ON_THE_WAY = 20e-6
"""Seconds that a request takes to arrive, at the least."""


def refused(quota: Quota, seed: int) -> tuple[Alone, int, float]:
    """Play a story until somebody is refused; return at what cost, and what it was told (s)."""
    chance = Random(seed)
    alone = Alone(quota, DEFAULT_SIZER, chance.choice([0.0, 0.0002, 0.002]), chance)
    for _ in range(chance.randint(0, 12)):
        alone.call(costs(quota.largest_cost, chance))
        alone.pass_by(pauses(quota, chance))
    while True:
        cost = min(costs(quota.largest_cost, chance), max(1, quota.largest_cost // PART))
        if wait := alone.call(cost):
            return alone, cost, wait


@pytest.mark.parametrize("quota", QUOTAS)
def test_what_is_told_is_kept_and_is_no_second_too_long(quota: str) -> None:
    """Whoever is told a wait does not know how much of its next request's way the bucket has counted already."""
    too_long = 0
    for seed in range(depth(40, 1000)):
        alone, cost, wait = refused(Quota.parse(quota), seed)
        told = whole_seconds(wait) or 0
        alone.pass_by(told + ON_THE_WAY)
        assert alone.call(cost) == 0.0, (seed, cost, wait)
        sooner, cost, _ = refused(Quota.parse(quota), seed)
        sooner.pass_by(told - 1 - sooner.round_trip)
        too_long += told > 1 and sooner.call(cost) == 0.0
    assert too_long == 0


def test_who_is_refused_at_one_a_second_comes_back_after_one() -> None:
    alone = Alone(Quota.parse("1/s"), DEFAULT_SIZER, 0.0, Random(1))
    assert alone.call(1) == 0.0
    assert whole_seconds(alone.call(1)) == 1
