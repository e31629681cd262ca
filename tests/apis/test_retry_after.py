"""What a refused caller is told of its cost where another one was refused before, of a process alone at its bucket."""

from typing import Any

import pytest

from batchlimit import Quota, RateLimited
from batchlimit.batching import FixedBatch
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
def test_a_larger_cost_is_told_when_it_fits_by_a_smaller_one(
    emptied: Any, clock: Clock, quota: str, pause: float, refused: int, then: int, told: float
) -> None:
    limiter = emptied(quota)
    clock.pass_by(pause)
    assert not limiter.decide(KEY, refused)
    decision = limiter.decide(KEY, then)
    late = decision.retry_after - told  # the bucket tells thousandths of a token
    assert (decision.source, -1e-6 <= late <= 0.001 / Quota.parse(quota).rate + _ROUNDING) == ("denied", True)


@pytest.mark.parametrize("pause", [0.0, 0.003, 0.2])
@pytest.mark.parametrize("quota", ["100/s burst 20", "10/s", "10/minute", "2/s burst 40"])
def test_nobody_is_told_to_come_too_early_or_a_token_late(emptied: Any, clock: Clock, quota: str, pause: float) -> None:
    limiter, terms = emptied(quota), Quota.parse(quota)
    clock.pass_by(pause)
    left = pause * terms.rate
    while limiter.decide(KEY, 1):
        left -= 1.0
    for cost in range(terms.burst // 2, int(0.8 * terms.burst)):  # above that, leased tokens stop the refill
        decision = limiter.decide(KEY, cost)
        late = decision.retry_after * terms.rate - (cost - left)
        assert (decision.allowed, cost, -_ROUNDING <= late <= 1.0) == (False, cost, True)


def _told(limiter: Any, call: str, cost: int) -> float:
    """Return when a caller that is refused is told to come back (s), in any of the ways to be told."""
    match call:
        case "decide":
            return float(limiter.decide(KEY, cost).retry_after)
        case "decide_all":
            return float(limiter.decide_all({KEY: cost})[KEY].retry_after)
        case _:
            with pytest.raises(RateLimited) as refusal:
                limiter.acquire(KEY, cost, timeout=0.001)
            return refusal.value.retry_after


@pytest.mark.parametrize("call", ["decide", "decide_all", "acquire"])
@pytest.mark.parametrize(
    ("quota", "spent", "pause", "refused", "then", "told"),
    [
        # the first bandwidth is empty, the second has plenty
        ("10/s burst 20; 100/hour", 20, 0.0, 1, 5, 0.5),
        ("10/s burst 20; 100/hour", 20, 0.03, 1, 20, 1.97),
        ("100/s burst 10; 20/minute burst 60", 10, 0.0, 2, 4, 0.04),
        # the second one is, the first is full
        ("1/s burst 50; 1000/hour burst 20", 20, 0.0, 1, 1, 3.6),
        ("1/s burst 50; 1000/hour burst 20", 20, 1.8, 1, 5, 16.2),
        ("1/s burst 50; 1000/hour burst 20", 20, 0.0, 3, 20, 72.0),
        # one is short of the smaller cost, the other of the larger
        ("5/s burst 5; 60/minute burst 6", 5, 0.0, 1, 1, 0.2),
        ("5/s burst 5; 60/minute burst 6", 5, 0.0, 1, 5, 4.0),
        ("5/s burst 5; 60/minute burst 6; 100/day burst 8", 5, 0.0, 1, 4, 864.0),
        # one alone, and a smaller cost after a larger one
        ("10/minute", 10, 0.0, 5, 2, 12.0),
        ("10/minute", 10, 0.0, 5, 10, 60.0),
    ],
)
def test_a_caller_that_is_told_when_to_come_back_is_admitted_then(
    api: Api, clock: Clock, without_refresher: None, call: str, quota: str, spent: int, pause: float, refused: int,
    then: int, told: float,
) -> None:  # fmt: skip
    with api(MemoryStore(clock), quota, clock=clock, sizer=FixedBatch(0)) as limiter:
        assert limiter.decide(KEY, spent)
        limiter.decide(KEY, 1)  # reports what was spent
        clock.pass_by(pause)
        assert not limiter.decide(KEY, refused)
        wait = _told(limiter, call, then)
        assert wait == pytest.approx(told, abs=_ROUNDING)
        clock.pass_by(wait)
        assert limiter.decide(KEY, then)


@pytest.mark.parametrize("call", ["decide", "decide_all", "acquire", "peek"])
@pytest.mark.parametrize(
    ("quota", "owed", "cost", "told"),
    [
        ("10/hour", 3, 1, 4 * 360.0),
        ("10/hour", 140, 1, 141 * 360.0),
        ("10/hour", 140, 10, 150 * 360.0),
        ("1000/minute burst 100", 50, 30, 80 * 0.06),
        ("10/s burst 20; 100/hour burst 50", 30, 1, 36.0),
        ("10/s burst 20; 100/hour burst 50", 40, 10, 20 * 36.0),
    ],
)
def test_a_debt_flows_in_before_the_next_caller_comes(
    api: Api, clock: Clock, without_refresher: None, call: str, quota: str, owed: int, cost: int, told: float
) -> None:
    """At most two seconds more, for a debt is paid whenever the background comes."""
    with api(MemoryStore(clock), quota, clock=clock, sizer=FixedBatch(0)) as limiter:
        burst = Quota.parse(quota).largest_cost
        with limiter.reserve(KEY, burst) as reservation:
            reservation.settle(burst + owed)
        limiter.decide(KEY)  # the first one that asks reports what was spent
        if call == "peek":
            assert (limiter.peek(KEY).allowed, limiter.peek(KEY).remaining) == (False, 0)
            slowest = min(each.rate for each in Quota.parse(quota).bandwidths)
            assert limiter.peek(KEY).retry_after >= told - (cost - 1) / slowest - _ROUNDING
        else:
            assert told <= _told(limiter, call, cost) <= told + 2.0


@pytest.mark.parametrize(("pause", "reset"), [(0.0, 60.0), (20.0, 40.0), (25.0, 35.0)])
def test_a_refused_caller_is_told_when_all_is_there_again(emptied: Any, clock: Clock, pause: Any, reset: Any) -> None:
    limiter = emptied("2/minute")
    clock.pass_by(pause)
    decision = limiter.decide(KEY)
    assert decision.reset_after == pytest.approx(reset, abs=0.05)


@pytest.mark.parametrize(
    ("quota", "cost", "pause", "again", "full"),
    [
        ("5/minute", 5, 5.0, 7.0, 55.0),
        ("5/minute", 3, 5.0, 0.0, 31.0),
        ("100/hour; 5/minute", 1, 0.0, 0.0, 36.0),
        ("100/hour; 5/minute", 5, 5.0, 7.0, 175.0),
        ("6/minute; 10/hour burst 6", 6, 15.0, 345.0, 2145.0),
    ],
)
def test_a_look_and_a_spend_tell_parts_of_a_token(
    api: Api, clock: Clock, without_refresher: None, quota: str, cost: int, pause: float, again: float, full: float
) -> None:
    """`100/hour; 5/minute` is full again 36 s after its first call: not 3,456 s, as if 96 of 100 were missing."""
    with api(MemoryStore(clock), quota, clock=clock) as limiter:
        told = limiter.decide(KEY, cost)
        assert told.reset_after == pytest.approx(full + pause, abs=_ROUNDING)
        clock.pass_by(pause)
        seen = limiter.peek(KEY)
        thousandth = 0.001 / min(each.rate for each in Quota.parse(quota).bandwidths)
        assert again <= seen.retry_after <= again + thousandth
        assert full <= seen.reset_after <= full + thousandth


@pytest.mark.parametrize("debt", ["a pause", "an estimate that was too low"])
def test_a_refusal_tells_when_an_owing_bucket_is_full(
    api: Api, clock: Clock, without_refresher: None, debt: str
) -> None:
    with api(MemoryStore(clock), "5/10s", clock=clock) as limiter:
        if debt == "a pause":
            limiter.pause(KEY, 2.0)
        else:
            with limiter.reserve(KEY, 3) as reservation:
                reservation.settle(7)
        seen, told = limiter.peek(KEY), limiter.decide(KEY)
        assert not told
        assert seen.reset_after == pytest.approx({"a pause": 12.0}.get(debt, 14.0), abs=0.01)
        assert told.reset_after == pytest.approx(seen.reset_after, abs=0.01)
