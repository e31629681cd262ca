"""When a grant begins that was made for later: the way of the ask is lost to the rate only where it must be."""

from random import Random
from typing import Any

import pytest

from batchlimit.quota.quota import Quota
from batchlimit.reservoir.sizing import FixedBatch
from batchlimit.reservoir.waiter import Admit, Wait
from tests.reservoir.alone import Alone
from tests.reservoir.entry import Entry
from tests.reservoir.world import SECOND, about, excess

ONE = Quota(100.0, 1)
TICK = 2e-6
FROM_THE_ASK, FROM_THE_ANSWER = 0.016, 0.020


@pytest.mark.parametrize(
    ("quota", "first", "second", "begins"),
    [
        (ONE, {}, {}, FROM_THE_ASK),
        (Quota(100.0, 3), {"granted": 3}, {}, FROM_THE_ASK),
        (Quota(100.0, 3), {"granted": 2}, {}, FROM_THE_ANSWER),  # another instance may have the third token.
        (ONE, {}, {"starts_in": 0.008}, FROM_THE_ASK),  # the answer to a copy, sent 2 ms later.
        (ONE, {"lease": 0.009}, {}, FROM_THE_ANSWER),  # the bucket may have refilled since the lease ended.
        (ONE, {"lease": 0.010}, {}, FROM_THE_ANSWER),  # nor is anything leased at the very end.
        (ONE, {}, {"version": 2}, FROM_THE_ANSWER),  # the bucket may have refilled by another quota.
        (ONE, {}, {"active_instances": 2}, FROM_THE_ANSWER),  # what was spent is refilled, and another may have that.
        (ONE, {}, {"epoch": 8}, FROM_THE_ANSWER),  # it may be another bucket.
        (ONE & Quota(1.0, 9), {}, {}, FROM_THE_ANSWER),  # the second bandwidth refilled all the time.
    ],
)
def test_a_grant_begins_from_the_ask_where_this_instance_had_the_whole_burst(
    quota: Quota, first: dict[str, Any], second: dict[str, Any], begins: float
) -> None:
    """An ask at 6 ms, an answer at 10 ms, and a token 10 ms after one or the other."""
    entry = Entry(quota)
    served = [entry.join(1) for _ in range(first.get("granted", 1))]
    told = {"tokens": 1, "lease": 0.1, "level": 0} | first
    told["tokens"] = told.pop("granted", 1)
    entry.grant(entry.fetch(served[0]), 0.004, **told)
    assert all(isinstance(each.verdict, Admit) for each in served)
    waiter = entry.join(1)
    entry.grant(entry.fetch(waiter, 0.006), 0.010, 1, **({"starts_in": 0.01, "level": -1} | second))
    assert entry.step(waiter, 0.010) == Wait(about(begins - 0.010))
    assert entry.step(waiter, begins - TICK) == Wait(about(TICK))
    assert isinstance(entry.step(waiter, begins + TICK), Admit)


def test_what_was_returned_in_between_fills_the_bucket_no_more() -> None:
    entry = Entry(ONE)
    gone = entry.join(1)
    entry.grant(entry.fetch(gone), 0.004, 1, lease=0.1, level=0)
    entry.reservoir.leave(gone, 0.004)
    assert entry.reservoir.lifecycle.drain() is not None
    entry.reservoir.gave_back(0.005)
    waiter = entry.join(1)
    entry.grant(entry.fetch(waiter, 0.006), 0.010, 1, starts_in=0.01, level=-1)
    assert entry.step(waiter, 0.010) == Wait(about(FROM_THE_ANSWER - 0.010))


@pytest.mark.parametrize("burst", [1, 3])
@pytest.mark.parametrize(
    ("round_trip", "apart"), [(0.0, 0.010), (0.001, 0.010), (0.004, 0.010), (0.009, 0.010), (0.015, 0.015)]
)
def test_who_waits_alone_gets_the_rate_however_far_away_the_bucket_is(
    burst: int, round_trip: float, apart: float
) -> None:
    """At the whole burst each; an answer that takes longer than the refill is what is waited for."""
    alone = Alone(Quota(100.0 * burst, burst), FixedBatch(0), round_trip, Random(1))
    admitted = []
    for _ in range(20):
        assert alone.call(burst, 1.0) == 0.0
        admitted.append((round((alone.now - 1000.0) * SECOND), burst))
    assert admitted[-1][0] - admitted[0][0] == pytest.approx(19 * apart * SECOND, rel=0.002)
    assert excess(admitted, 100.0 * burst, burst) < 0.001 * burst


def test_tokens_that_are_kept_fill_no_bucket_by_a_quota_that_was_lowered() -> None:
    """Others may hold tokens by the old one still."""
    entry = Entry(Quota(100.0, 3))
    entry.grant(entry.fetch(entry.join(1)), 0.001, 2, lease=0.1, level=0)
    refused = entry.fetch(entry.join(2), 0.002)
    entry.grant(refused, 0.004, lease=0.1, retry_after=0.01, level=0, version=2, quota=ONE)
    assert entry.reservoir.tokens.take(1) > 0.006
    waiter = entry.join(1)
    entry.grant(entry.fetch(waiter, 0.015), 0.019, 1, starts_in=0.01, level=-1, version=2, quota=ONE)
    assert entry.step(waiter, 0.019) == Wait(about(0.010))
