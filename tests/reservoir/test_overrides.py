"""What a key does when its instance learns of another override."""

import math

import pytest

from batchlimit.base.waiting import NO_WAIT
from batchlimit.quota.failure_policy import FailurePolicy
from batchlimit.quota.overrides.known import UNTOLD
from batchlimit.quota.overrides.override import Override
from batchlimit.quota.overrides.overrides import InForce
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.denial_cache import MOMENT
from batchlimit.reservoir.waiter import Admit, Fail, Fetch, Refuse, Wait
from tests.reservoir.entry import DEAD, HUNDRED
from tests.reservoir.ruled import NOTHING, Ruled, Rules
from tests.reservoir.world import figures

LOW, HIGH = Quota(5.0, 5), Quota(1000.0, 1000)


def test_an_answer_tells_the_instance_the_revision_if_it_was_to() -> None:
    caller = Ruled()
    caller.grant(caller.fetch(caller.join(1)), tokens=1, rules=9)
    caller.rules.looks_at = 1.0
    caller.grant(caller.fetch(caller.join(1), 0.5), 0.5, tokens=1, rules=-1)
    assert caller.rules.heard == [9]
    assert caller.fetch(caller.join(1), 1.0).ask.look, "from then on"


def test_tokens_leased_before_a_lower_limit_go_back_with_the_next_request_which_is_due_at_once() -> None:
    caller = Ruled(tokens=60)
    assert caller.reservoir.lifecycle.due() > 0.5
    caller.reservoir.tokens.take(1)
    caller.obey(LOW)
    assert caller.reservoir.lifecycle.due() <= 0.5
    fetch = caller.tend(0.5)
    assert (fetch.quota, fetch.ask.back + fetch.ask.held) == (LOW, 59)
    assert fetch.ask.back >= 59 - LOW.burst
    caller.grant(fetch, 0.5, tokens=4)
    assert caller.held == 4
    assert caller.reservoir.lifecycle.due() > 0.6, "it is done once"


def test_an_override_of_the_failure_policy_holds_while_the_store_is_away_and_ends() -> None:
    caller = Ruled()
    caller.learn(Override("key", None, on_failure=FailurePolicy.open()))
    waiter = caller.join(1, NO_WAIT)
    caller.reservoir.failed(caller.fetch(waiter), DEAD, 0.0)
    assert isinstance(waiter.verdict, Admit)
    assert figures(caller.reservoir).fallback == 1
    caller.learn(at=0.1, revision=8)
    caller.reservoir.lifecycle.tend(5.0)
    waiter = caller.join(1, NO_WAIT)
    caller.reservoir.failed(caller.fetch(waiter, 5.0), DEAD, 5.0)
    assert isinstance(waiter.verdict, Fail)


def test_after_a_rate_of_zero_a_grant_begins_as_any_other() -> None:
    """Though a grant arrived meanwhile, whose ask was in flight before."""
    caller = Ruled()
    fetch = caller.fetch(caller.join(1))
    for at, overrides in ((0.0, [Override("key", NOTHING)]), (0.2, [])):
        caller.learn(*overrides, at=at)
        caller.grant(fetch, 0.1, tokens=50)
        assert caller.held == 0
    waiter = caller.join(1)
    caller.grant(caller.fetch(waiter, 0.3), 0.4, tokens=1)
    assert isinstance(waiter.verdict, Admit)


def test_a_raised_limit_undoes_what_was_refused_from_memory() -> None:
    caller = Ruled()
    caller.refuse(caller.fetch(caller.join(1, NO_WAIT)))
    caller.reservoir.to_wake()
    assert caller.reservoir.forecast.denied_for(1, 0.1)
    caller.obey(HIGH)
    caller.reservoir.to_wake()
    assert not caller.reservoir.forecast.denied_for(1, 0.1)
    assert caller.reservoir.tokens.denied_until <= 0.1


def test_a_limit_of_nothing_lets_all_tokens_go_and_refuses_without_asking() -> None:
    caller = Ruled(tokens=60)
    caller.reservoir.requests.want_refill()
    caller.obey(NOTHING)
    caller.reservoir.to_wake()
    assert caller.held == 0
    assert caller.reservoir.lifecycle.tend(0.0) is None
    assert caller.reservoir.tokens.denied_until == 1.0, "then it looks again"
    assert isinstance(caller.step(caller.join(1)), Refuse)


def test_a_waiter_goes_when_a_hold_becomes_longer_than_its_timeout() -> None:
    caller = Ruled(rules=Rules(Override("key", NOTHING, until=5.0)))
    waiter, other = caller.join(1, 60.0), caller.join(1, 4.0)
    assert caller.step(waiter, 1.0) == Wait(1.0)
    assert other.verdict == Refuse(4.0), "it cannot wait so long"
    assert caller.rules.heard == [UNTOLD] * 2, "it looks when it is made, and a second later"
    caller.learn(Override("key", NOTHING, until=90.0), at=1.0, revision=8)
    assert waiter in caller.reservoir.to_wake()
    assert caller.step(waiter, 1.0) == Refuse(89.0)


def test_a_hold_whose_end_has_come_lasts_until_the_instance_ends_it() -> None:
    caller = Ruled(rules=Rules(Override("key", NOTHING, until=5.0)))
    waiter = caller.join(1, 60.0)
    assert isinstance(caller.step(waiter, 9.0), Wait)
    assert caller.step(caller.join(1, NO_WAIT), 9.0) == Refuse(MOMENT)
    assert caller.reservoir.lifecycle.tend(20.0) is None
    caller.rules.in_force = InForce.at(caller.rules.in_force.overrides, 9.0)
    caller.reservoir.rule.reconsider(9.0)
    assert isinstance(caller.step(waiter, 9.0), Fetch)


def test_tokens_that_arrive_after_a_limit_of_nothing_was_set_are_not_spent() -> None:
    caller = Ruled()
    waiter = caller.join(1)
    fetch = caller.fetch(waiter)
    caller.obey(NOTHING)
    caller.grant(fetch, 0.1, tokens=50)
    assert not isinstance(waiter.verdict, Admit)
    assert caller.held == 0


def test_who_waits_for_more_than_a_lower_limit_ever_has_is_told() -> None:
    caller = Ruled()
    leader, big, small = caller.join(1), caller.join(40), caller.join(3)
    fetch = caller.fetch(leader)
    caller.obey(LOW)
    assert big.verdict == Refuse(math.inf), "the code allows it: that is no mistake of the caller"
    assert caller.step(caller.join(40)) == Refuse(math.inf)
    assert isinstance(caller.step(caller.join(101)), Fail)
    assert big in caller.woken()
    assert small.verdict is None
    caller.grant(fetch, 0.1, tokens=1)


@pytest.mark.parametrize("revision", [8, 9])
def test_a_revision_that_says_the_same_for_this_key_disturbs_nothing_but_is_its_rank(revision: int) -> None:
    caller = Ruled(tokens=3, rules=Rules(Override("key", LOW)))
    due = caller.reservoir.lifecycle.due()
    caller.obey(LOW, revision)
    assert (caller.held, caller.reservoir.lifecycle.due()) == (3, due)
    assert caller.fetch(caller.join(5)).ask.rules == caller.rules.in_force.edition


def test_after_a_limit_of_nothing_the_bucket_is_asked_again() -> None:
    caller = Ruled(rules=Rules(Override("key", NOTHING)))
    waiter = caller.join(1)
    assert isinstance(caller.step(waiter), Refuse)
    caller.learn(revision=8)
    fetch = caller.fetch(caller.join(1))
    assert (fetch.quota, caller.reservoir.tokens.denied_until) == (HUNDRED, -math.inf)
