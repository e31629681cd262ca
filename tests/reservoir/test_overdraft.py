"""Tokens that were used but not admitted are paid as tokens come, in their turn, and nobody waits for that."""

import pytest

from batchlimit.base.waiting import NO_WAIT
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.waiter import Admit, Fetch, Refuse, Waiter
from tests.reservoir.entry import Entry
from tests.reservoir.world import Waking, about, figures


def debtor(tokens: int, owed: int = 0, *, burst: int = 100) -> Entry:
    """An entry with so many tokens, by a lease of a hundred seconds, and a debt."""
    entry = Entry(Quota(100.0, burst))
    grant(entry, entry.fetch(entry.join(1)), tokens + 1)
    entry.woken()
    if owed:
        entry.reservoir.lifecycle.debit(owed, 0.0)
    return entry


def grant(entry: Entry, fetch: Fetch, tokens: int, at: float = 0.0, *, retry_after: float = 0.0) -> None:
    entry.grant(fetch, at, tokens, lease=100.0, retry_after=retry_after)


def owed(entry: Entry) -> int:
    return entry.reservoir.state.overdraft.total


def test_what_is_here_pays_at_once() -> None:
    entry = debtor(10, 4)
    assert (owed(entry), entry.reservoir.tokens.available) == (0, 6)
    assert figures(entry.reservoir).admitted == 5
    assert entry.reservoir.lifecycle.due() > 0.0


def test_it_is_paid_bit_by_bit() -> None:
    entry = debtor(0, 15)
    for tokens, left in ((4, 11), (10, 1), (3, 0)):
        grant(entry, entry.tend(0.0), tokens)
        assert owed(entry) == left
    assert (entry.reservoir.tokens.available, entry.reservoir.state.overdraft.paid) == (2, 15)
    assert figures(entry.reservoir).admitted == 16


def test_who_comes_later_is_served_after_it_however_large_it_is() -> None:
    """Five bursts: in line there is one at a time, always in the same place."""
    entry = debtor(0, 50, burst=10)
    later = entry.join(1)
    for at in map(float, range(5)):
        assert later.verdict is None
        fetch = entry.fetch(later, at)
        assert fetch.ask.queued == 11
        grant(entry, fetch, 10, at)
    assert (owed(entry), later.verdict) == (0, None)
    grant(entry, entry.fetch(later, 5.0), 1, 5.0)
    assert isinstance(later.verdict, Admit)


def test_who_came_before_is_served_before_it() -> None:
    entry = debtor(0)
    before = entry.join(5)
    entry.reservoir.lifecycle.debit(7, 0.0)
    fetch = entry.fetch(before)
    assert (fetch.ask.need, fetch.ask.queued) == (5, 12)
    grant(entry, fetch, 9)
    assert isinstance(before.verdict, Admit)
    assert owed(entry) == 3


def test_a_second_debt_stands_last_again() -> None:
    entry = debtor(0, 3)
    grant(entry, entry.tend(0.0), 3)
    waiting = entry.join(2)
    entry.reservoir.lifecycle.debit(10, 0.0)
    fetch = entry.fetch(waiting)
    grant(entry, fetch, 4)
    assert isinstance(waiting.verdict, Admit)
    assert owed(entry) == 8


def test_who_stands_before_a_debt_is_not_refused_for_it() -> None:
    entry = debtor(0, burst=10)
    before = entry.join(10, 4.0)
    fetch = entry.fetch(before)
    entry.reservoir.lifecycle.debit(10**6, 0.0)
    grant(entry, fetch, 0, retry_after=0.1)
    assert before.verdict is None
    behind = entry.join(1, 4.0)
    assert isinstance(entry.reservoir.step(behind, 0.0), Refuse)


def test_debts_add_up() -> None:
    entry = debtor(0, 5)
    entry.reservoir.lifecycle.debit(6, 0.0)
    assert owed(entry) == 11
    assert entry.tend(0.0).ask.queued == 11


def test_a_refused_debt_is_asked_for_again_when_it_may_fit() -> None:
    entry = debtor(0, 5)
    grant(entry, entry.tend(0.0), 0, retry_after=0.5)
    assert owed(entry) == 5
    assert entry.reservoir.lifecycle.due() == pytest.approx(0.5)
    assert entry.tend(0.5).ask.need == 1


def test_whoever_takes_the_first_answer_is_refused_behind_a_debt() -> None:
    entry = debtor(0, 5)
    grant(entry, entry.tend(0.0), 0, retry_after=0.5)
    assert isinstance(entry.reservoir.step(entry.join(1, NO_WAIT), 0.0), Refuse)
    assert entry.reservoir.forecast.denied_for(1, 0.0) == pytest.approx(0.5)


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
    entry = debtor(0, owed)
    view, quota = entry.reservoir.state.view, entry.reservoir.state.quota
    view.round_trip = round_trip
    assert entry.reservoir.state.overdraft.delay(cost, quota, view) == about(seconds)


def test_a_debt_is_no_caller_that_waits() -> None:
    entry = debtor(0, 5)
    assert figures(entry.reservoir).waiting == 0
    entry.join(2)
    assert figures(entry.reservoir).waiting == 1


def test_a_smaller_quota_changes_what_stands_in_line_and_not_what_is_owed() -> None:
    entry = debtor(0, 90)
    entry.reservoir.admission.obey(Quota(10.0, 20))
    assert owed(entry) == 90
    assert entry.tend(0.0).ask.queued == 20


def test_a_closed_reservoir_owes_nothing() -> None:
    entry = debtor(0, 10**15)
    entry.reservoir.lifecycle.close(ConnectionError("closed"), Waiter(0, NO_WAIT, Waking()))
    assert entry.reservoir.lifecycle.drain() is None
    assert (owed(entry), len(entry.reservoir.state.queue)) == (0, 0)


def test_the_end_pays_what_the_bucket_has_now_and_no_more() -> None:
    entry = debtor(0, 30)
    entry.reservoir.lifecycle.close(ConnectionError("closed"), Waiter(0, NO_WAIT, Waking()))
    fetch = entry.reservoir.lifecycle.last_ask(0.0)
    assert fetch is not None
    assert (fetch.ask.need, fetch.ask.queued, fetch.ask.max_wait) == (1, 30, 0.0)
    grant(entry, fetch, 12)
    assert (owed(entry), figures(entry.reservoir).admitted) == (18, 1 + 12)
    assert entry.reservoir.lifecycle.drain() is None
    assert owed(entry) == 0
