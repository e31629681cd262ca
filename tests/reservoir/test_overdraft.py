"""Tokens that were used but not admitted are paid as tokens come, in their turn, and nobody waits for that."""

import math

import pytest

from batchlimit.base.waiting import NO_WAIT
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.sizing import FixedBatch
from batchlimit.reservoir.waiter import Admit, Fail, Fetch, Refuse, Waiter
from tests.reservoir.world import KeyFigures, Waking, about, answer, figures, made


class Debtor:
    """A reservoir with so many tokens, by a lease of a hundred seconds, and a debt."""

    def __init__(self, tokens: int, owed: int = 0, *, burst: int = 100) -> None:
        self.reservoir = made(Quota(100.0, burst), sizer=FixedBatch(0))
        self.at = 0.0
        first = self.join(1)
        fetch = self.reservoir.step(first, self.at)
        assert isinstance(fetch, Fetch)
        self.grant(fetch, tokens + 1)
        self.reservoir.to_wake()
        if owed:
            self.reservoir.lifecycle.debit(owed, self.at)

    def join(self, cost: int, deadline: float = math.inf) -> Waiter:
        waiter = Waiter(cost, deadline, Waking())
        self.reservoir.admission.join(waiter)
        return waiter

    def tend(self) -> Fetch:
        fetch = self.reservoir.lifecycle.tend(self.at)
        assert isinstance(fetch, Fetch)
        return fetch

    def grant(self, fetch: Fetch, tokens: int, *, retry_after: float = 0.0) -> None:
        granted = answer(tokens, kept=fetch.ask.held, lease=100.0, retry_after=retry_after)
        self.reservoir.granted(fetch, granted, self.at, 1.0)

    @property
    def owed(self) -> int:
        return self.reservoir.state.overdraft.total

    @property
    def here(self) -> int:
        return self.reservoir.tokens.available


def test_what_is_here_pays_at_once() -> None:
    debtor = Debtor(10, 4)
    assert (debtor.owed, debtor.here) == (0, 6)
    assert figures(debtor.reservoir).admitted == 5
    assert debtor.reservoir.lifecycle.due() > debtor.at


def test_part_of_it_is_paid_and_the_rest_is_asked_for() -> None:
    debtor = Debtor(10, 25)
    assert (debtor.owed, debtor.here) == (15, 0)
    assert debtor.reservoir.lifecycle.due() <= debtor.at
    ask = debtor.tend().ask
    assert (ask.need, ask.queued, ask.held) == (1, 15, 0)


def test_it_is_paid_bit_by_bit() -> None:
    debtor = Debtor(0, 15)
    for tokens, owed in ((4, 11), (10, 1), (3, 0)):
        debtor.grant(debtor.tend(), tokens)
        assert debtor.owed == owed
    assert (debtor.here, debtor.reservoir.state.overdraft.paid) == (2, 15)
    assert figures(debtor.reservoir).admitted == 16


def test_who_comes_later_is_served_after_it_however_large_it_is() -> None:
    """Five bursts: in line there is one at a time, always in the same place."""
    debtor = Debtor(0, 50, burst=10)
    later = debtor.join(1)
    for _ in range(5):
        assert later.verdict is None
        fetch = debtor.reservoir.step(later, debtor.at)
        assert isinstance(fetch, Fetch)
        assert fetch.ask.queued == 11
        debtor.grant(fetch, 10)
        debtor.at += 1.0
    assert (debtor.owed, later.verdict) == (0, None)
    fetch = debtor.reservoir.step(later, debtor.at)
    assert isinstance(fetch, Fetch)
    debtor.grant(fetch, 1)
    assert isinstance(later.verdict, Admit)


def test_who_came_before_is_served_before_it() -> None:
    debtor = Debtor(0)
    before = debtor.join(5)
    debtor.reservoir.lifecycle.debit(7, debtor.at)
    fetch = debtor.reservoir.step(before, debtor.at)
    assert isinstance(fetch, Fetch)
    assert (fetch.ask.need, fetch.ask.queued) == (5, 12)
    debtor.grant(fetch, 9)
    assert isinstance(before.verdict, Admit)
    assert debtor.owed == 3


def test_a_second_debt_stands_last_again() -> None:
    debtor = Debtor(0, 3)
    debtor.grant(debtor.tend(), 3)
    waiting = debtor.join(2)
    debtor.reservoir.lifecycle.debit(10, debtor.at)
    fetch = debtor.reservoir.step(waiting, debtor.at)
    assert isinstance(fetch, Fetch)
    debtor.grant(fetch, 4)
    assert isinstance(waiting.verdict, Admit)
    assert debtor.owed == 8


def test_who_stands_before_a_debt_is_not_refused_for_it() -> None:
    debtor = Debtor(0, burst=10)
    before = debtor.join(10, 4.0)
    fetch = debtor.reservoir.step(before, debtor.at)
    assert isinstance(fetch, Fetch)
    debtor.reservoir.lifecycle.debit(10**6, debtor.at)
    debtor.grant(fetch, 0, retry_after=0.1)
    assert before.verdict is None
    behind = debtor.join(1, 4.0)
    assert isinstance(debtor.reservoir.step(behind, debtor.at), Refuse)


def test_debts_add_up() -> None:
    debtor = Debtor(0, 5)
    debtor.reservoir.lifecycle.debit(6, debtor.at)
    assert debtor.owed == 11
    assert debtor.tend().ask.queued == 11


def test_a_refused_debt_is_asked_for_again_when_it_may_fit() -> None:
    debtor = Debtor(0, 5)
    debtor.grant(debtor.tend(), 0, retry_after=0.5)
    assert debtor.owed == 5
    assert debtor.reservoir.lifecycle.due() == pytest.approx(0.5)
    debtor.at = 0.5
    assert debtor.tend().ask.need == 1


def test_whoever_takes_the_first_answer_is_refused_behind_a_debt() -> None:
    debtor = Debtor(0, 5)
    debtor.grant(debtor.tend(), 0, retry_after=0.5)
    assert isinstance(debtor.reservoir.step(debtor.join(1, NO_WAIT), debtor.at), Refuse)
    assert debtor.reservoir.forecast.denied_for(1, debtor.at) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("owed", "cost", "round_trip", "seconds"),
    [
        (0, 100, 0.0, 0.0),
        (5, 95, 0.0, 0.5),  # two and a half paces of 200 ms
        (5, 96, 0.0, 0.5 + 0.4),  # what paid counts as leased, until its lease ends
        (5, 96, 0.4, 0.5 + 0.8),  # which outlasts two round trips
    ],
)
def test_what_is_owed_delays_who_is_refused(owed: int, cost: int, round_trip: float, seconds: float) -> None:
    """By as long as it takes to ask for it, and to have its tokens counted as spent."""
    debtor = Debtor(0, owed)
    view, quota = debtor.reservoir.state.view, debtor.reservoir.state.quota
    view.round_trip = round_trip
    assert debtor.reservoir.state.overdraft.delay(cost, quota, view) == about(seconds)


def test_a_failing_store_forgives_no_debt_and_is_left_alone_a_while() -> None:
    debtor = Debtor(0, 5)
    debtor.reservoir.failed(debtor.tend(), ConnectionError("away"), debtor.at)
    assert debtor.owed == 5
    assert debtor.at < debtor.reservoir.lifecycle.due() <= 0.1
    debtor.at = 0.1
    assert debtor.tend().repeated


def test_a_caller_behind_a_debt_asks_for_both_and_hears_of_a_failure() -> None:
    debtor = Debtor(0, 5)
    caller = debtor.join(2)
    assert debtor.reservoir.lifecycle.due() == math.inf, "the caller is awake, and looks after the debt"
    fetch = debtor.reservoir.step(caller, debtor.at)
    assert isinstance(fetch, Fetch)
    debtor.reservoir.failed(fetch, BucketUnavailable("away"), debtor.at)
    assert isinstance(caller.verdict, Fail)
    assert debtor.owed == 5


def test_a_debt_is_no_caller_that_waits() -> None:
    debtor = Debtor(0, 5)
    assert figures(debtor.reservoir).waiting == 0
    debtor.join(2)
    assert figures(debtor.reservoir).waiting == 1


def test_a_smaller_quota_changes_what_stands_in_line_and_not_what_is_owed() -> None:
    debtor = Debtor(0, 90)
    debtor.reservoir.admission.obey(Quota(10.0, 20))
    assert debtor.owed == 90
    assert debtor.tend().ask.queued == 20


def test_what_is_owed_keeps_the_key_in_memory_until_it_is_paid() -> None:
    debtor = Debtor(0, 5)
    debtor.at = 1000.0
    fetch = debtor.tend()
    assert not debtor.reservoir.state.is_retired
    debtor.grant(fetch, 5)
    for debtor.at in (1001.0, 2000.0):  # the first look finds that it was used
        assert debtor.reservoir.lifecycle.tend(debtor.at) is None
    assert debtor.reservoir.state.is_retired


def test_a_closed_reservoir_owes_nothing() -> None:
    debtor = Debtor(0, 10**15)
    debtor.reservoir.lifecycle.close(ConnectionError("closed"), Waiter(0, NO_WAIT, Waking()))
    assert debtor.reservoir.lifecycle.drain() is None
    assert (debtor.owed, len(debtor.reservoir.state.queue)) == (0, 0)


def test_the_end_pays_what_the_bucket_has_now_and_no_more() -> None:
    debtor = Debtor(0, 30)
    debtor.reservoir.lifecycle.close(ConnectionError("closed"), Waiter(0, NO_WAIT, Waking()))
    fetch = debtor.reservoir.lifecycle.last_ask(debtor.at)
    assert fetch is not None
    assert (fetch.ask.need, fetch.ask.queued, fetch.ask.max_wait) == (1, 30, 0.0)
    debtor.grant(fetch, 12)
    assert (debtor.owed, figures(debtor.reservoir).admitted) == (18, 1 + 12)
    assert debtor.reservoir.lifecycle.drain() is None
    assert debtor.owed == 0


def test_who_owes_nothing_asks_no_more() -> None:
    debtor = Debtor(5)
    debtor.reservoir.lifecycle.close(ConnectionError("closed"), Waiter(0, NO_WAIT, Waking()))
    assert debtor.reservoir.lifecycle.last_ask(debtor.at) is None


def test_what_is_owed_is_in_the_figures() -> None:
    debtor = Debtor(0, 250, burst=100)
    assert figures(debtor.reservoir).owed == 250


def test_a_rate_of_zero_owes_nothing() -> None:
    reservoir = made(Quota(0))
    reservoir.lifecycle.debit(5, 0.0)
    assert figures(reservoir) == KeyFigures()
