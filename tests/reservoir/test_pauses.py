"""What was asked for before a pause is not spent in it, whenever its answer comes."""

import pytest

from batchlimit.base.waiting import LONG_AGO, NO_WAIT
from batchlimit.bucket.messages import GiveBack
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.waiter import Fetch, Wait, Waiter
from tests.reservoir.entry import PATIENT, Entry
from tests.reservoir.world import Waking, about

HUNDRED = Quota(100.0, 100)


def waiter(deadline: float = PATIENT) -> Waiter:
    return Waiter(1, deadline, Waking())


def test_a_grant_that_was_under_way_is_void() -> None:
    entry = Entry(HUNDRED)
    first = waiter()
    entry.reservoir.admission.join(first)
    fetch = entry.fetch(first, 0.0)
    assert entry.reservoir.lifecycle.pause(5.0, 0.1, waiter()) is None, "nothing is here, and one request in flight"
    entry.grant(fetch, 0.2, 50)
    assert (first.verdict, entry.reservoir.state.lease.held) == (None, 0)


def test_what_is_here_is_void_though_a_request_is_in_flight() -> None:
    entry = Entry(HUNDRED, tokens=20)
    entry.fetch(entry.join(30), 0.1)
    assert entry.held == 20
    entry.reservoir.lifecycle.pause(5.0, 0.1, waiter())
    assert entry.held == 0


def test_a_grant_that_was_asked_for_at_the_very_instant_of_the_pause_is_void_until_it_is_lifted() -> None:
    for lifted, held in (False, 0), (True, 49):
        entry = Entry(HUNDRED)
        first = waiter()
        entry.reservoir.admission.join(first)
        fetch = entry.fetch(first, 0.1)
        entry.reservoir.lifecycle.pause(5.0, 0.1, waiter())
        if lifted:
            entry.reservoir.lifecycle.resume()
        entry.grant(fetch, 0.1, 50)
        assert (entry.reservoir.state.lease.held, first.verdict is not None) == (held, lifted)


def test_the_tokens_of_a_lost_answer_are_not_asked_for_again_in_a_pause() -> None:
    entry = Entry(HUNDRED)
    first = waiter()
    entry.reservoir.admission.join(first)
    lost = entry.fetch(first, 0.0)
    entry.reservoir.failed(lost, None, 0.05)
    entry.reservoir.lifecycle.pause(0.2, 0.1, waiter())
    again = entry.fetch(first, 0.4)
    assert (again.ask.seq > lost.ask.seq, again.repeated) == (True, False)


def test_what_is_leased_goes_back_and_is_not_asked_for_until_the_end_or_half_a_second() -> None:
    entry = Entry(HUNDRED)
    first, pausing = waiter(), waiter()
    entry.reservoir.admission.join(first)
    entry.grant(entry.fetch(first, 0.0), 0.0, 50)
    back = entry.reservoir.lifecycle.pause(5.0, 0.1, pausing)
    assert isinstance(back, GiveBack)
    assert back.tokens == 49
    entry.reservoir.gave_back(0.1)
    assert entry.reservoir.admission.deny(1, 0.2)
    second = waiter()
    entry.reservoir.admission.join(second)
    assert entry.step(second, 0.25) == Wait(0.35)
    assert isinstance(entry.step(second, 0.7), Fetch)


def test_who_waits_looks_again_when_a_pause_begins_and_when_it_is_lifted() -> None:
    entry = Entry(HUNDRED)
    first = entry.join(1)
    entry.reservoir.requests.want_refill()
    entry.woken()
    entry.reservoir.lifecycle.pause(5.0, 0.1, waiter())
    assert entry.woken() == [first]
    entry.reservoir.lifecycle.resume()
    assert entry.woken() == [first]
    assert not entry.reservoir.requests.wants_refill, "and nothing is fetched ahead"
    assert isinstance(entry.step(first, 0.1), Fetch), "the bucket has what it had"


def test_a_pause_uses_no_key() -> None:
    entry = Entry(HUNDRED, tokens=1)
    entry.reservoir.tokens.take(1)
    entry.reservoir.lifecycle.pause(5.0, 0.5, waiter())
    entry.reservoir.lifecycle.tend(3.0)
    assert entry.reservoir.state.used == 0.5, "what was spent before was spent by then"


@pytest.mark.parametrize(("level", "until"), [(-15, LONG_AGO), (-16, 0.1 + 1.6), (0, LONG_AGO)])
def test_a_bucket_that_owes_more_than_is_granted_ahead_is_paused(level: int, until: float) -> None:
    """One second ahead, and a round trip."""
    entry = Entry(Quota(10.0, 5))
    entry.grant(entry.fetch(entry.join(1)), 0.1, level=level)
    assert entry.reservoir.state.view.paused_until == about(until)


def test_a_pause_is_known_by_what_the_bucket_owes_then() -> None:
    caller = Entry(quota := Quota(10.0, 5))
    caller.grant(caller.fetch(caller.join(1)), tokens=3, lease=60.0)
    caller.reservoir.lifecycle.pause(2.0, 0.5, Waiter(0, NO_WAIT, Waking()))
    view = caller.reservoir.state.view
    assert (view.paused_until, view.level) == (2.5, -20)
    assert view.fits_in(5, quota, 0.5) == about(2.5), "nothing is leased any more"
    caller.reservoir.lifecycle.resume()
    assert (view.paused_until, view.level) == (LONG_AGO, 0)
