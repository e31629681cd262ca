"""A reservoir whose store is away: who is admitted by what, and what becomes of that when the store is back."""

import math
from typing import Any

import pytest

from batchlimit.base.waiting import NO_WAIT
from batchlimit.bucket.messages import GiveBack
from batchlimit.errors import LimiterClosed, StoreUnavailable
from batchlimit.quota.failure_policy import UNCOUNTED, CircuitOpen, FailurePolicy
from batchlimit.quota.overrides.code import Rank
from batchlimit.quota.overrides.override import KeyRule
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.fallback import LEASE, Fallback
from batchlimit.reservoir.sizing import FixedBatch
from batchlimit.reservoir.waiter import Admit, Fail, Fetch, Refuse, Wait, Waiter
from tests.reservoir.entry import DEAD, HUNDRED, Entry
from tests.reservoir.world import KeyFigures, Waking, about, figures

LOCAL = FailurePolicy.local(instances=4)


def fail(entry: Entry, waiter: Waiter, at: float) -> None:
    """The waiter's ask goes out, and fails."""
    entry.reservoir.failed(entry.fetch(waiter, at), DEAD, at)


def admits(entry: Entry, at: float, callers: int = 30) -> int:
    """How many of these callers, each of one token, are served when their ask fails."""
    line = [entry.join(1, NO_WAIT) for _ in range(callers)]
    fail(entry, line[0], at)
    return sum(isinstance(waiter.verdict, Admit) for waiter in line)


def away(policy: FailurePolicy = LOCAL, quota: Quota = HUNDRED, **rest: Any) -> Entry:
    return Entry(quota, policy=policy, **rest)


class Own(StoreUnavailable):
    """An error of a user's own store, which cannot be copied."""

    def __init__(self, _one: int, _two: int) -> None:
        super().__init__("away")
        self.shard = 7


AWAY = CircuitOpen("away")
CAUSED = StoreUnavailable("away")
CAUSED.__cause__ = DEAD


@pytest.mark.parametrize(
    ("error", "kind", "cause"),
    [
        (error := StoreUnavailable("away"), StoreUnavailable, error),
        (CAUSED, StoreUnavailable, DEAD),
        (CircuitOpen("away"), StoreUnavailable, None),
        (closed := LimiterClosed("away"), LimiterClosed, closed),
        (own := Own(1, 2), StoreUnavailable, own),
    ],
)
@pytest.mark.parametrize(("hint", "said"), [("", "away"), ("wait longer", "away; wait longer")])
def test_an_error_that_many_are_told_is_one_for_each(
    error: Exception, kind: type[Exception], cause: Exception | None, hint: str, said: str
) -> None:
    one, other = (Fail(error, hint).to_raise("key") for _ in range(2))
    assert (type(one), str(one), one.__cause__, getattr(one, "key", "key")) == (kind, said, cause, "key")
    assert len({error, one, other}) == 3
    assert getattr(one, "shard", 0) == getattr(error, "shard", 0), "what it says besides"


def test_closed_refuses_from_memory_while_the_store_is_given_up() -> None:
    """For 50 ms, so that the first call after them finds out whether it still is."""
    entry = away(FailurePolicy.closed(), tokens=2)
    waiter = entry.join(3, NO_WAIT)
    fail(entry, waiter, 0.1)
    assert entry.reservoir.forecast.denied_for(3, 0.1) == 0.0, "one failure is no reason not to ask"
    waiter = entry.join(3, NO_WAIT)
    entry.reservoir.failed(entry.fetch(waiter, 0.1), CircuitOpen("given up"), 0.1)
    assert isinstance(waiter.verdict, Fail)
    forecast = entry.reservoir.forecast
    assert [forecast.denied_for(cost, 0.12) for cost in (1, 2)] == [0.0, 0.0], "what is leased still serves"
    assert forecast.denied_for(3, 0.12) == about(0.03)
    assert forecast.denied_for(101, 0.12) == 0.0, "what never fits is an error"
    assert forecast.denied_for(3, 0.151) == 0.0
    assert figures(entry.reservoir) == KeyFigures(1, 6, 2, held=2), "what was not sent is no call"


def test_an_ask_that_was_never_sent_is_not_repeated() -> None:
    """Nothing was lost with it: the key rests as soon as others do, and at its end asks no more."""
    entry = away(FailurePolicy.closed())
    entry.reservoir.failed(entry.fetch(entry.join(1, NO_WAIT), 0.0), CircuitOpen("given up"), 0.0)
    assert entry.reservoir.lifecycle.last_ask(0.1) is None
    assert entry.reservoir.lifecycle.due() == about(1.0), "it was used until then, and has nothing to keep"
    fetch = entry.fetch(entry.join(1, NO_WAIT), 0.2)
    assert (fetch.ask.seq, fetch.repeated) == (2, False)


def test_open_admits_whatever_comes() -> None:
    entry = away(FailurePolicy.open())
    line = [entry.join(cost, deadline) for cost, deadline in ((100, NO_WAIT), (1, NO_WAIT), (50, math.inf))]
    fail(entry, line[0], 1.0)
    assert [waiter.verdict for waiter in line] == [Admit(1.0 + LEASE)] * 3
    assert entry.reservoir.tokens.take(100) == 1.0 + LEASE, "who comes next hits"
    assert entry.reservoir.state.lease.borrowed
    found = figures(entry.reservoir)
    assert (found.admitted, found.fallback, found.refused) == (251, 251, 0)


def test_what_is_spent_of_the_fallback_while_the_store_is_asked_again_is_the_fallbacks() -> None:
    entry = away(FailurePolicy.open())
    fail(entry, entry.join(1, NO_WAIT), 1.0)
    entry.reservoir.requests.want_refill()
    fetch = entry.tend(1.2)
    assert entry.reservoir.tokens.take(3) == 1.0 + LEASE
    entry.grant(fetch, 1.3, 10)
    assert figures(entry.reservoir)[:4] == (4, 0, 2, 4)


def test_after_a_failure_the_leader_looks_again_whoever_asked() -> None:
    entry = away(FailurePolicy.closed())
    leader, other = entry.join(1), entry.join(1)
    fetch = entry.fetch(other, 1.0)
    entry.woken()
    entry.reservoir.failed(fetch, DEAD, 1.0)
    assert entry.woken() == [leader]


def test_local_admits_its_share_and_refuses_the_rest_from_memory() -> None:
    entry = away()
    line = [entry.join(1, NO_WAIT) for _ in range(30)]
    fail(entry, line[0], 1.0)
    assert [isinstance(waiter.verdict, Admit) for waiter in line] == [True] * 25 + [False] * 5
    late = entry.join(1, NO_WAIT)
    fail(entry, late, 1.0)
    assert late.verdict == Refuse(about(0.04)), "a token of its share of the rate"
    assert entry.reservoir.forecast.denied_for(1, 1.01) == about(0.03)
    assert entry.reservoir.forecast.denied_for(1, 1.05) == 0.0
    assert figures(entry.reservoir) == KeyFigures(25, 6, 2, fallback=25)


def test_who_is_refused_is_told_when_the_share_has_its_tokens() -> None:
    entry = Entry(HUNDRED, policy=FailurePolicy.local(4))
    entry.reservoir.failed(entry.fetch(entry.join(1)), DEAD, 0.0)
    for cost, seconds in (60, 0.04), (25, 0.04):  # a larger cost than the share is admitted when that is full
        assert entry.reservoir.forecast.retry_after(Waiter(cost, NO_WAIT, Waking()), 0.0) == about(seconds)


@pytest.mark.parametrize(("behind", "is_served"), [(5, True), (9, False)])
def test_whose_time_is_up_in_an_outage_leaves_its_place_to_those_behind(behind: int, is_served: bool) -> None:
    """They are served by the five tokens that are here, or watch the clock from then on."""
    entry = away(FailurePolicy.closed(), tokens=5)
    first, second = entry.join(10, 0.3), entry.join(behind)
    fail(entry, first, 0.1)
    entry.woken()
    assert isinstance(entry.step(first, 0.3), Fail)
    assert isinstance(second.verdict, Admit) == is_served
    assert entry.woken() == [first, second]


@pytest.mark.parametrize(
    ("policy", "at", "hasty", "patient", "denied_for"),
    [
        (FailurePolicy.open(), 8.0, Refuse(about(2.01)), None, 2.01),
        (FailurePolicy.open(), 9.5, Refuse(about(0.51)), None, 0.51),
        (FailurePolicy.open(), 10.0, Admit(10.5), Admit(10.5), 0.0),
        (FailurePolicy.open(), 10.5, Admit(11.0), Admit(11.0), 0.0),
        (LOCAL, 8.0, Refuse(about(2.01)), None, 2.01),
        (FailurePolicy.closed(), 8.0, Fail(AWAY), Fail(AWAY), 0.04),
    ],
)
def test_a_pause_goes_on_while_the_store_is_away(
    policy: FailurePolicy, at: float, hasty: Any, patient: Any, denied_for: float
) -> None:
    """Of ten seconds. Memory refuses from then on, and asks no store that is away."""
    entry = away(policy)
    entry.reservoir.lifecycle.pause(10.0, 0.0, Waiter(0, NO_WAIT, Waking()))
    line = [entry.join(1, NO_WAIT), entry.join(1)]
    entry.reservoir.failed(entry.fetch(line[1], at), AWAY, at)
    assert [waiter.verdict for waiter in line] == [hasty, patient]
    assert entry.reservoir.forecast.denied_for(1, at + 0.01) == about(denied_for)


def test_a_policy_that_begins_to_lend_in_an_outage_refuses_and_fails_nobody() -> None:
    entry = away(FailurePolicy.closed())
    patient = entry.join(1)
    fail(entry, patient, 1.0)
    assert patient.verdict is None
    entry.reservoir.rule.recode(KeyRule(HUNDRED), LOCAL, Rank(0, 1.0), 1.0)
    fail(entry, patient, 1.1)
    assert isinstance(patient.verdict, Admit)
    late = entry.join(25, 1.2)
    assert isinstance(entry.step(late, 1.2), Refuse)


def test_it_begins_with_its_share_of_what_was_in_the_bucket() -> None:
    entry = away()
    first = entry.join(1)
    entry.grant(entry.fetch(first, 1.0), 1.0, 1, level=40, active_instances=5)
    assert admits(entry, 1.1) == 10, "(40 + 100/s x 0.1 s) / 5"


def test_a_prefetch_that_fails_fails_nobody_who_comes_later() -> None:
    entry = away(FailurePolicy.closed(), tokens=20, sizer=FixedBatch(10))
    entry.reservoir.tokens.low_watermark = 21
    entry.step(entry.join(1, NO_WAIT))
    entry.reservoir.failed(entry.tend(0.1), DEAD, 0.15)
    late = entry.join(30, 0.4)
    entry.fetch(late, 0.2)
    assert isinstance(entry.step(late, 0.4), Refuse), "its time was up before its own ask had an answer"


def test_what_was_borrowed_does_not_travel() -> None:
    entry = away(sizer=FixedBatch(20))
    fail(entry, entry.join(1, NO_WAIT), 1.0)
    assert entry.reservoir.forecast.remaining(1.0) == 24
    assert entry.refund(1, 1.0) is None, "it was never taken from the bucket"
    assert entry.reservoir.forecast.remaining(1.0) == 25
    assert entry.reservoir.lifecycle.drain() is None
    entry = away(sizer=FixedBatch(20))
    fail(entry, entry.join(1, NO_WAIT), 1.0)
    assert entry.reservoir.lifecycle.due() == 1.0 + LEASE
    assert entry.reservoir.lifecycle.tend(1.0 + LEASE) is None, "not given back, and not renewed"
    assert entry.held == 0
    assert entry.reservoir.lifecycle.drain() is None


@pytest.mark.parametrize(("cost", "at"), [(24, 1.0), (30, 1.05)])
def test_what_nobody_used_of_a_share_is_there_for_who_needs_more(cost: int, at: float) -> None:
    """With it the share is full at 1.04 s, and serves who needs more than it may ever have."""
    entry = away(sizer=FixedBatch(20))
    fail(entry, entry.join(1, NO_WAIT), 1.0)
    assert entry.held == 19
    big = entry.join(cost, NO_WAIT)
    fail(entry, big, at)
    assert big.verdict == Admit(at + LEASE)
    assert entry.reservoir.forecast.remaining(at) == 0


@pytest.mark.parametrize(("level", "is_lent"), [(-5, False), (100, True)])
def test_what_was_granted_for_later_is_not_there_at_once(level: int, is_lent: bool) -> None:
    """Nor later: it was the bucket's, and who knows what became of that. The share lends as much on top."""
    entry = away()
    first = entry.join(5)
    entry.grant(entry.fetch(first, 1.0), 1.0, 5, starts_in=0.3, level=level, active_instances=4)
    other = entry.join(9)
    fetch = entry.reservoir.lifecycle.last_ask(1.0) or entry.reservoir.requests.ask(1.0)
    entry.reservoir.failed(fetch, DEAD, 1.0)
    assert [isinstance(each.verdict, Admit) for each in (first, other)] == [is_lent, is_lent]
    assert entry.reservoir.state.lease.pending == 0


def test_what_a_tentative_caller_borrowed_does_not_return_to_a_lease() -> None:
    """It gives up when the store is back, and what it was given was never the bucket's."""
    entry = away()
    tentative = entry.join(5, 9.0, tentative=True)
    fail(entry, tentative, 1.0)
    assert isinstance(tentative.verdict, Admit)
    entry.grant(entry.fetch(entry.join(10, 9.0), 1.2), 1.2, 10)
    assert entry.held == 0
    entry.reservoir.leave(tentative, 1.25)
    assert entry.held == 0


def test_a_tentative_caller_that_gives_up_leaves_what_it_borrowed_to_others() -> None:
    entry = away()
    tentative = entry.join(25, 9.0, tentative=True)
    fail(entry, tentative, 1.0)
    assert entry.reservoir.state.lease.served == 0, "the store served nobody"
    entry.reservoir.leave(tentative, 1.1)
    assert entry.reservoir.state.lease.served == 0
    assert entry.reservoir.tokens.take(25) == 1.0 + LEASE


def test_what_a_tentative_caller_borrowed_is_no_room_for_a_refund() -> None:
    """Once the store is back, which leases nothing: a token beyond what was borrowed goes there."""
    entry = away()
    tentative = entry.join(5, 9.0, tentative=True)
    fail(entry, tentative, 1.0)
    entry.grant(entry.fetch(entry.join(1, 9.0), 1.2), 1.2, retry_after=0.5, level=0)
    back = entry.refund(6, 1.3)
    assert (back and back.refund, entry.held) == (1, 0)


def test_what_a_tentative_caller_borrowed_does_not_return_after_its_lease() -> None:
    """Though this instance has lent itself more meanwhile."""
    entry = away()
    tentative = entry.join(5, 9.0, tentative=True)
    fail(entry, tentative, 1.0)
    assert isinstance(tentative.verdict, Admit)
    assert tentative.verdict.before == 1.0 + LEASE
    fail(entry, entry.join(3, 9.0), 1.0 + LEASE)
    held = entry.held
    entry.reservoir.leave(tentative, 1.0 + LEASE)
    assert entry.held == held


def test_what_expired_unused_is_there_again() -> None:
    """A call now and then, and large batches: else each of them would cost the share a batch."""
    entry = away(quota=Quota(0.001, 100), sizer=FixedBatch(20))
    admitted = 0
    for second in range(30):
        waiter = entry.join(1, NO_WAIT)
        if entry.reservoir.tokens.take(1) == -math.inf:
            fail(entry, waiter, float(second))
        admitted += isinstance(waiter.verdict, Admit)
        entry.reservoir.lifecycle.tend(second + LEASE)
    assert admitted == 25


@pytest.mark.parametrize(("at", "back"), [(LEASE - 0.001, None), (LEASE, GiveBack("a", 2, 0, refund=2))])
def test_a_refund_of_more_than_was_borrowed_stays_as_long_as_that(at: float, back: GiveBack | None) -> None:
    entry = away()
    fail(entry, entry.join(1, NO_WAIT), 1.0)
    assert entry.refund(3, 1.0 + at) == back


def test_a_refund_of_what_the_bucket_never_gave_does_not_go_there() -> None:
    """For a minute: who asks later has a lease of the bucket's own to refund."""
    entry = away(FailurePolicy.open())
    fail(entry, entry.join(100, NO_WAIT), 1.0)
    entry.grant(entry.fetch(entry.join(50, 9.0), 3.0), 3.0, 50)
    assert entry.refund(60, 3.1) is None
    assert entry.held == 0
    assert entry.refund(60, 4.5) == GiveBack("a", 2, 0, refund=20), "forty were the last of that hundred"
    fail(entry, entry.join(100, NO_WAIT), 5.0)
    entry.grant(entry.fetch(entry.join(50, 9.0), 6.0), 6.0, 50)
    assert entry.refund(60, 67.0) is not None


@pytest.mark.parametrize(("at", "back"), [(65.999, None), (66.0, 60)])
def test_for_a_minute_after_the_return_a_refund_may_be_of_what_was_admitted_without_the_store(
    at: float, back: int | None
) -> None:
    entry = away(FailurePolicy.open())
    fail(entry, entry.join(100, NO_WAIT), 5.0)
    entry.grant(entry.fetch(entry.join(1, 9.0), 6.0), 6.0, 1)
    sent = entry.refund(60, at)
    assert (sent and sent.refund) == back


def test_what_was_left_of_a_lease_does_not_return_to_the_share() -> None:
    """Of 22 one was borrowed, on top of five that were leased."""
    entry = away(quota=Quota(0.001, 100), tokens=5)
    fail(entry, entry.join(6, NO_WAIT), 0.1)
    entry.reservoir.lifecycle.tend(0.1 + LEASE)
    assert entry.reservoir.state.fallback.bucket is not None
    assert entry.reservoir.state.fallback.bucket.level(1.0) == 21


def test_what_was_borrowed_and_not_used_is_in_the_share_at_the_next_outage() -> None:
    entry = away(quota=Quota(0.001, 100), sizer=FixedBatch(20))
    fail(entry, entry.join(1, NO_WAIT), 1.0)
    entry.grant(entry.fetch(entry.join(21, NO_WAIT), 1.1), 1.1, 21)
    assert entry.reservoir.state.fallback.bucket is not None
    assert entry.reservoir.state.fallback.bucket.level(1.1) == 24
    assert entry.refund(1, 1.2) is None
    assert entry.reservoir.state.fallback.bucket.level(1.2) == 24, "the store is there: no share is lent"


@pytest.mark.parametrize(
    ("policy", "hint", "fails_closed"),
    [(FailurePolicy.closed(), "", True), (FailurePolicy.open(), "", False), (FailurePolicy.local(), UNCOUNTED, False)],
)
def test_a_policy_says_what_to_tell_where_it_lends_nothing(
    policy: FailurePolicy, hint: str, fails_closed: bool
) -> None:
    found = Fallback(policy)
    told = found.failure(DEAD)
    assert (told.error, told.hint, found.fails_closed) == (DEAD, hint, fails_closed)


def test_a_give_back_that_was_not_sent_keeps_its_refund() -> None:
    entry = away(FailurePolicy.closed(), tokens=20)
    calls = entry.reservoir.state.calls
    back = entry.reservoir.lifecycle.refund(Waiter(30, NO_WAIT, Waking()), 0.1)
    assert back is not None
    assert entry.reservoir.state.calls == calls + 1
    entry.reservoir.gave_back(0.2, unsent=back)
    assert entry.reservoir.state.calls == calls
    assert entry.reservoir.lifecycle.due() == about(1.2), "and rests, as long as the store is given up"
    again = entry.reservoir.lifecycle.tend(1.2)
    assert isinstance(again, GiveBack)
    assert again.refund == back.refund > 0


def test_a_store_that_comes_and_goes_mints_nothing() -> None:
    """The share that was used up stays used up, whatever the store says in between."""
    entry = away()
    assert admits(entry, 1.0) == 25
    waiter = entry.join(1, NO_WAIT)
    entry.grant(entry.fetch(waiter, 1.1), 1.1, 1, level=100, active_instances=4)
    assert waiter.verdict == Admit(2.1)
    assert admits(entry, 1.2, 25) == 5, "what 0.2 s brought in"


def test_a_share_that_is_full_again_is_forgotten() -> None:
    """Then the next outage begins with what is in the bucket by then, shared by as many as there are by then."""
    entry = away()
    fail(entry, entry.join(25, NO_WAIT), 1.0)
    for at in (1.1, 2.0):  # at the first of them it is not full
        entry.grant(entry.fetch(entry.join(1, NO_WAIT), at), at, 1, level=0, active_instances=4)
    assert admits(entry, 2.2, 25) == 5, "(0 + 100/s x 0.2 s) / 4"


def test_a_key_does_not_retire_before_its_share_is_full() -> None:
    """Its next reservoir would begin anew: one every ten seconds, and a daily quota were a joke."""
    daily = Quota(100 / 86400, 100)
    entry = away(quota=daily, idle_after=10.0)
    fail(entry, entry.join(25, NO_WAIT), 1.0)
    entry.reservoir.lifecycle.tend(1.0 + LEASE)
    assert entry.reservoir.lifecycle.due() == about(1.0 + 86400)
    assert entry.reservoir.lifecycle.tend(12.0) is None
    assert not entry.reservoir.state.is_retired


def test_the_tokens_of_the_bucket_and_of_each_outage_are_told_apart() -> None:
    """Tokens that were taken of one of them do not return to another."""
    lease, generations = away().reservoir.state.lease, []
    for _ in range(2):
        generations.append(lease.generation)
        lease.borrow(5, LEASE, 1.0)
        assert (lease.starts, lease.borrowed) == (1.0, True)
        generations.append(lease.generation)
        lease.borrow(5, LEASE, 1.0)
        assert lease.generation == generations[-1], "the same one goes on"
        lease.disown()
    assert len(set(generations)) == 4


def test_a_repeated_ask_pauses_too() -> None:
    """That its answer would be about an older question must not make its callers ask without end."""
    entry = away()
    fail(entry, entry.join(25), 1.0)
    waiter = entry.join(1, math.inf)
    fetch = entry.fetch(waiter, 1.0)
    assert fetch.repeated
    entry.reservoir.failed(fetch, DEAD, 1.0)
    assert isinstance(entry.step(waiter, 1.0), Wait)


def test_a_debt_alone_borrows_nothing() -> None:
    entry = away()
    entry.reservoir.lifecycle.debit(5, 0.0)
    fetch = entry.tend(0.0)
    entry.reservoir.failed(fetch, DEAD, 0.1)
    assert not entry.reservoir.state.lease.borrowed
    assert figures(entry.reservoir).owed == 5


def test_a_quota_that_changes_changes_the_share() -> None:
    entry = away()
    fail(entry, entry.join(25, NO_WAIT), 1.0)
    younger = Quota(1000.0, 1000)
    entry.grant(entry.fetch(entry.join(1, NO_WAIT), 1.1), 1.1, 1, level=800, active_instances=4, quota=younger)
    assert admits(entry, 1.1, 300) == 200


def test_fetches_follow_each_other_no_faster_than_their_pauses() -> None:
    """A caller that waits while the store is away asks as often as its share has something for it, and no oftener."""
    entry = away(quota=Quota(10.0, 10))
    fail(entry, entry.join(10), 0.0)
    waiter, now, asks = entry.join(10, math.inf), 0.0, 0
    while waiter.verdict is None:
        match entry.step(waiter, now):
            case Fetch() as fetch:
                asks += 1
                entry.reservoir.failed(fetch, DEAD, now)
            case Wait(seconds):
                assert seconds is not None
                now += seconds
            case _:
                break
    assert now == about(4.0), "10 tokens are due, and 2.5 are its share of the burst: 7.5 of debt, then 2.5, at 2.5/s"
    assert asks <= 10
