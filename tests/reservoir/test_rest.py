"""How long a key with nothing in it is left alone: until then nobody has to look when something is due."""

import math
from collections.abc import Callable

import pytest

from batchlimit.base.waiting import NO_WAIT
from batchlimit.quota.failure_policy import CLOSED
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.denial_cache import DenialCache
from batchlimit.reservoir.fallback import Fallback
from batchlimit.reservoir.sizing import FixedBatch
from batchlimit.reservoir.waiter import RETIRED, Admit, Waiter
from tests.reservoir.entry import DEAD, Entry
from tests.reservoir.world import KeyFigures, Waking, figures


def empty(idle_after: float = 10.0) -> Entry:
    """It spent the one token that it was granted, at 0.0."""
    entry = Entry(idle_after=idle_after)
    entry.grant(entry.fetch(entry.join(1)), 0.0, 1)
    assert entry.held == 0
    return entry


@pytest.mark.parametrize(("idle_after", "until"), [(10.0, 1.0), (0.5, 0.5), (0.0, 0.0)])
def test_an_empty_key_is_left_alone_for_a_second_after_its_use_or_until_it_is_idle(
    idle_after: float, until: float
) -> None:
    reservoir = empty(idle_after).reservoir
    assert reservoir.at_rest_until == until
    assert reservoir.lifecycle.due() >= until


def test_each_use_puts_that_off() -> None:
    entry = empty()
    entry.grant(entry.fetch(entry.join(1), 0.9), 0.9, 1)
    assert entry.reservoir.at_rest_until == 1.9


def may_have_a_refund_of_what_the_bucket_never_gave(entry: Entry) -> None:
    entry.reservoir.state.fallback = fallback = Fallback(CLOSED)
    fallback.unrefunded = 1


def lost_an_answer(entry: Entry) -> None:
    entry.reservoir.requests.lost_number = 1


def goes_by_a_quota_that_the_bucket_told_of(entry: Entry) -> None:
    entry.reservoir.admission.obey(Quota(50.0, 50))


@pytest.mark.parametrize(
    ("begin", "due"),
    [
        (lambda entry: None, 1.0),
        (may_have_a_refund_of_what_the_bucket_never_gave, 10.0),
        (lost_an_answer, 10.0),
        (goes_by_a_quota_that_the_bucket_told_of, 10.0),
    ],
)
def test_a_key_retires_soon_unless_it_knows_what_no_snapshot_keeps(begin: Callable[[Entry], None], due: float) -> None:
    entry = empty()
    begin(entry)
    assert entry.reservoir.lifecycle.due() == due


def is_waited_for(entry: Entry) -> None:
    entry.join(1)


def has_tokens(entry: Entry) -> None:
    entry.grant(entry.fetch(entry.join(1)), 0.0, 5)


def owes_a_refund(entry: Entry) -> None:
    """Its lease is over, and the store was not even asked."""
    back = entry.reservoir.lifecycle.refund(Waiter(1, NO_WAIT, Waking()), 2.0)
    assert back is not None
    entry.reservoir.gave_back(2.0, back)


def wants_a_refill(entry: Entry) -> None:
    entry.reservoir.requests.want_refill()


@pytest.mark.parametrize("begin", [is_waited_for, has_tokens, owes_a_refund, wants_a_refill])
def test_a_key_with_anything_to_do_is_not_left_alone(begin: Callable[[Entry], None]) -> None:
    entry = empty()
    begin(entry)
    assert entry.reservoir.at_rest_until == -math.inf
    assert entry.reservoir.lifecycle.due() < math.inf or entry.reservoir.state.queue


def test_a_debt_is_asked_for_though_a_larger_cost_was_refused() -> None:
    entry = Entry()
    entry.reservoir.lifecycle.debit(5, 0.0)
    entry.reservoir.state.denials = DenialCache.dry(0.3, 2, 0.0)
    assert entry.reservoir.lifecycle.due() <= 0.0


def is_asked_for(entry: Entry) -> None:
    entry.reservoir.tokens.take(1)
    entry.tend(0.95)


def has_served_one_who_may_leave(entry: Entry) -> None:
    waiter = entry.join(1, math.inf, tentative=True)
    entry.step(waiter)


def gives_tokens_back(entry: Entry) -> None:
    assert entry.reservoir.lifecycle.drain() is not None


def owes(entry: Entry) -> None:
    entry.reservoir.lifecycle.debit(20, 0.0)


@pytest.mark.parametrize(
    "begin", [is_waited_for, is_asked_for, gives_tokens_back, owes, owes_a_refund, has_served_one_who_may_leave]
)
def test_a_key_that_somebody_needs_makes_no_room(begin: Callable[[Entry], None]) -> None:
    entry = Entry(tokens=5)
    begin(entry)
    assert not entry.reservoir.lifecycle.evict()
    assert not entry.reservoir.state.is_retired


def test_a_key_that_made_room_is_empty_and_its_figures_are_whole() -> None:
    entry = Entry(tokens=5)
    reservoir = entry.reservoir
    assert reservoir.lifecycle.evict()
    assert reservoir.state.is_retired
    assert figures(reservoir) == KeyFigures(admitted=1, calls=1)
    assert (reservoir.tokens.take(1), reservoir.tokens.expires) == (NO_WAIT, -math.inf), "nobody spends here any more"
    assert (reservoir.forecast.spendable(0.0), reservoir.lifecycle.due()) == (0, math.inf)
    assert reservoir.lifecycle.tend(0.0) is None


@pytest.mark.parametrize(("at", "step"), [(0.5, Admit(1.0)), (2.0, RETIRED)])
def test_who_was_served_before_a_key_made_room_is_admitted_if_it_wakes_in_time(at: float, step: object) -> None:
    """One that rejoined its queue asked from there: two that ask as one mint tokens."""
    entry = Entry(tokens=5)
    waiter = entry.join(1)
    assert isinstance(entry.step(waiter), Admit)
    assert entry.reservoir.lifecycle.evict()
    assert entry.step(waiter, at) == step
    assert entry.reservoir.state.calls == 1


def test_the_last_ask_holds_nothing_that_has_expired() -> None:
    entry = Entry(tokens=5, sizer=FixedBatch(50))
    entry.reservoir.failed(entry.fetch(entry.join(10)), None, 0.1)
    entry.reservoir.lifecycle.close(DEAD, Waiter(0, NO_WAIT, Waking()))
    fetch = entry.reservoir.lifecycle.last_ask(2.0)
    assert fetch is not None
    assert (fetch.ask.held, fetch.ask.want) == (0, 0)
