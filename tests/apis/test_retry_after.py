"""What a refused caller is told of its cost, where a smaller cost was refused before: neither too little nor much more.

The process is alone at its bucket, so what the bucket says of one cost tells what it would say of every other.
"""

from typing import Any

import pytest

from batchlimit import Quota
from batchlimit.stores import MemoryStore
from tests.apis.blocking import Api
from tests.sync.stage import Clock

KEY = "tenant:42"
_ROUNDING = 1e-4


@pytest.fixture
def emptied(api: Api, clock: Clock, request: pytest.FixtureRequest) -> Any:
    """Makes a limiter whose bucket is empty, and knows that all of its burst is spent."""

    def make(quota: str) -> Any:
        limiter = api(MemoryStore(clock), quota, clock=clock)
        request.addfinalizer(limiter.close)
        assert limiter.decide(KEY, Quota.parse(quota).burst)
        assert not limiter.decide(KEY)
        return limiter

    return make


@pytest.mark.parametrize(
    ("quota", "pause", "refused", "then", "told"),
    [
        ("10/s", 0.0, 1, 5, 0.5),
        ("10/s", 0.03, 1, 5, 0.47),
        ("10/s", 0.25, 3, 10, 0.75),
        ("10/minute", 0.0, 1, 1, 6.0),
        ("10/minute", 0.0, 1, 5, 30.0),
        ("10/minute", 5.9, 1, 2, 6.1),
        ("4/s burst 8", 0.6, 4, 8, 1.4),
        ("100/day", 80.0, 1, 100, 86320.0),
    ],
)
def test_a_larger_cost_is_told_when_it_fits_by_what_the_bucket_said_of_a_smaller_one(
    emptied: Any, clock: Clock, quota: str, pause: float, refused: int, then: int, told: float
) -> None:
    limiter = emptied(quota)
    clock.pass_by(pause)
    assert not limiter.decide(KEY, refused)
    decision = limiter.decide(KEY, then)
    assert (decision.source, decision.retry_after) == ("denied", pytest.approx(told, abs=_ROUNDING))


@pytest.mark.parametrize("pause", [0.0, 0.003, 0.2])
@pytest.mark.parametrize("quota", ["100/s burst 20", "10/s", "10/minute", "2/s burst 40"])
def test_nobody_is_told_to_come_back_too_early_and_at_most_a_token_too_late(
    emptied: Any, clock: Clock, quota: str, pause: float
) -> None:
    limiter, terms = emptied(quota), Quota.parse(quota)
    clock.pass_by(pause)
    left = pause * terms.rate
    while limiter.decide(KEY, 1):
        left -= 1.0
    for cost in range(terms.burst // 2, terms.burst):
        decision = limiter.decide(KEY, cost)
        late = decision.retry_after * terms.rate - (cost - left)
        assert (decision.allowed, cost, -_ROUNDING <= late <= 1.0) == (False, cost, True)
