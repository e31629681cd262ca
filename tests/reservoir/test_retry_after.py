"""What a refused caller is told is enough: after exactly that time it is admitted, if its process is alone."""

from random import Random

import pytest

from batchlimit.quota.quota import Quota
from batchlimit.reservoir.sizing import DEFAULT_SIZER, FixedBatch, FractionBatch
from tests.depth import depth
from tests.reservoir.alone import Alone, costs, pauses

_ONE = ("10/s", "100/s burst 20", "10/minute", "2/s burst 40", "100/s", "1/s burst 1", "1000/s burst 100", "10/hour")
_SEVERAL = (
    "10/s burst 20; 100/hour",
    "5/s burst 5; 60/minute burst 30; 1000/day burst 100",
    "100/s burst 10; 20/minute burst 60",
    "1/s burst 50; 1000/hour burst 20",
)
_ROUNDED = 677
"""The seed of a caller who was told an instant that a float cannot tell from the one at which its tokens are there."""
_SIZERS = (DEFAULT_SIZER, FixedBatch(0), FixedBatch(1), FixedBatch(7), FractionBatch())


@pytest.mark.parametrize("seed", sorted({*range(depth(40, 3000)), _ROUNDED}))
@pytest.mark.parametrize("owing", [False, True], ids=["paid", "owing"])
@pytest.mark.parametrize("quotas", [_ONE, _SEVERAL], ids=["one bandwidth", "several"])
def test_who_waits_as_long_as_it_was_told_is_admitted(quotas: tuple[str, ...], owing: bool, seed: int) -> None:
    chance = Random(seed)
    quota = Quota.parse(chance.choice(quotas))
    alone = Alone(quota, chance.choice(_SIZERS), chance.choice([0.0, 0.0, 0.002, 0.05]), chance)
    largest = quota.largest_cost
    for _ in range(chance.randint(5, 60)):
        cost, wait = costs(largest, chance), 0.0
        match chance.choice(["call"] * 10 + ["deny"] * 2 + ["wait", "refund", "owe"] + ["pass"] * 5):
            case "call":
                wait = alone.call(cost)
            case "deny":
                wait = alone.deny(cost)
            case "wait":
                wait = alone.call(cost, patience=chance.choice([0.01, 0.3, 1.0]))
            case "refund":
                alone.refund(chance.choice([1, 2]))
            case "owe" if owing and alone.owed < 5 * largest and min(each.rate for each in quota.bandwidths) >= 0.2:
                alone.owe(chance.choice([1, 3, largest, 2 * largest + 1]))
            case _:
                alone.pass_by(pauses(quota, chance))
        if wait and chance.random() < 0.4:
            alone.pass_by(wait)
            assert (alone.call(cost), cost, wait) == (0.0, cost, wait)
