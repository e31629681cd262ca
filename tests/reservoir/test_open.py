"""What a key does while an operator admits everything."""

import math
from typing import Any

import pytest

from batchlimit.base.decision import Decision
from batchlimit.base.waiting import NO_WAIT
from batchlimit.bucket.messages import GiveBack
from batchlimit.quota.overrides.known import UNTOLD
from batchlimit.quota.overrides.override import Override
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.fallback import LEASE
from batchlimit.reservoir.sizing import FixedBatch
from batchlimit.reservoir.waiter import Admit, Fetch
from tests.reservoir.entry import HUNDRED
from tests.reservoir.ruled import NOTHING, Ruled
from tests.reservoir.world import figures

OPEN = Override("key", None, mode="open")


def opened(quota: Quota = HUNDRED, tokens: int = 0, **rest: Any) -> Ruled:
    caller = Ruled(quota, tokens, **rest)
    open_up(caller)
    return caller


def open_up(caller: Ruled, now: float = 0.0) -> None:
    caller.learn(OPEN, at=now)
    caller.reservoir.to_wake()


def close(caller: Ruled, now: float = 0.0) -> None:
    caller.learn(at=now, revision=8)
    caller.reservoir.to_wake()


@pytest.mark.parametrize("quota", [HUNDRED, Quota(1.0, 1), NOTHING], ids=str)
def test_everybody_is_admitted_and_the_bucket_is_not_asked(quota: Quota) -> None:
    caller = opened(quota)
    for now in (0.0, 0.1, 0.2, 7.0):
        for cost in (1, quota.largest_cost or 1):
            assert isinstance(caller.step(caller.join(cost), now), Admit)
            assert isinstance(caller.step(caller.join(cost, NO_WAIT), now), Admit)
    assert figures(caller.reservoir).calls == 0
    assert figures(caller.reservoir).opened == figures(caller.reservoir).admitted > 0
    assert figures(caller.reservoir).fallback == 0


@pytest.mark.parametrize(("owed", "demand"), [(0, 4.0), (1000, 404.0)])
def test_each_such_grant_pays_what_is_owed_and_lasts_for_half_a_second_and_a_burst(owed: int, demand: float) -> None:
    caller = Ruled()
    caller.reservoir.lifecycle.debit(owed, 0.0)
    open_up(caller)
    caller.step(caller.join(1), 0.0)
    assert (figures(caller.reservoir).owed, caller.held) == (0, demand * LEASE + 100)


def test_each_such_grant_is_a_reason_to_look_at_the_overrides() -> None:
    caller = opened()
    caller.step(caller.join(1), 0.0)
    caller.step(caller.join(1), LEASE)
    assert caller.rules.heard == [UNTOLD, UNTOLD]


def test_leased_tokens_go_back_whole_and_none_are_fetched_ahead() -> None:
    caller = Ruled(tokens=60, sizer=FixedBatch(60))
    caller.reservoir.tokens.take(1)
    open_up(caller, 0.1)
    assert caller.reservoir.lifecycle.due() <= 0.1
    back = caller.reservoir.lifecycle.tend(0.1)
    assert isinstance(back, GiveBack)
    assert (back.tokens, caller.held) == (59, 0)
    caller.reservoir.gave_back(0.1)
    assert caller.reservoir.lifecycle.tend(0.2) is None


def test_leased_tokens_go_back_though_it_ended_before_anybody_came() -> None:
    caller = opened(tokens=60)
    close(caller)
    assert caller.tend(0.0).ask.back == 60


def test_what_an_answer_under_way_brings_goes_back_at_once() -> None:
    caller = Ruled()
    fetch = caller.fetch(leader := caller.join(1))
    open_up(caller)
    caller.step(leader, 0.1)
    caller.grant(fetch, 0.2, tokens=50)
    assert caller.reservoir.lifecycle.tend(0.2) == GiveBack("a", 2, tokens=50)


def test_an_answer_that_was_under_way_refuses_nobody() -> None:
    caller = Ruled()
    hasty = caller.join(1, NO_WAIT)
    fetch = caller.fetch(hasty)
    open_up(caller)
    caller.refuse(fetch, 0.1)
    caller.reservoir.to_wake()
    assert caller.reservoir.tokens.denied_until == -math.inf
    assert isinstance(caller.step(caller.join(1), 0.1), Admit)


def test_nothing_of_it_is_spent_after_the_end_and_nothing_of_it_goes_to_the_bucket() -> None:
    caller = opened()
    caller.step(caller.join(1), 0.0)
    caller.reservoir.tokens.take(1)
    close(caller, 0.1)
    assert caller.reservoir.tokens.take(1) == -math.inf
    fetch = caller.fetch(caller.join(5), 0.1)
    assert isinstance(fetch, Fetch)
    assert (fetch.ask.held, fetch.ask.back, fetch.ask.need) == (0, 0, 5)
    assert figures(caller.reservoir).opened == 2
    caller.grant(fetch, 0.2, tokens=5)
    assert figures(caller.reservoir)[:2] == (7, 0)
    assert figures(caller.reservoir).opened == 2


def test_a_refund_of_what_was_admitted_freely_does_not_reach_the_bucket() -> None:
    caller = opened()
    caller.step(caller.join(9), 0.0)
    assert caller.refund(4, 0.1) is None
    close(caller, 0.2)
    assert caller.refund(5, 0.2) is None
    back = caller.refund(1, 0.3)
    assert back is not None
    assert back.refund == 1, "more than was admitted: that was of before"


def test_a_minute_later_a_refund_is_of_what_the_bucket_gave() -> None:
    caller = opened()
    caller.step(caller.join(9), 0.0)
    close(caller, 0.2)
    assert caller.refund(2, 60.1) is None
    back = caller.refund(2, 60.2)
    assert back is not None
    assert back.refund == 2


def test_a_look_at_such_a_key_says_that_it_admits_all_of_the_burst_at_once() -> None:
    caller = Ruled()
    assert caller.reservoir.forecast.without_bucket(0.0) is None
    open_up(caller)
    assert caller.reservoir.forecast.without_bucket(0.0) == Decision(True, 100, 100, 0.0, 0.0, "open", HUNDRED)
