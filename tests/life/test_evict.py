"""A reservoir that leaves the memory to make room: nobody gets a token of it any more, and no needed one leaves."""

import math

from batchlimit import Quota
from batchlimit.base.waiting import NO_WAIT
from batchlimit.batching import FixedBatch
from batchlimit.bucket.messages import GiveBack
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.waiter import NOBODY, RETIRED, Admit, Fetch, Waiter
from tests.reservoir.world import KeyFigures, answer, figures, made

NEVER = math.inf


def reservoir(idle_after: float = 10.0) -> Reservoir:
    return made(Quota(100.0, 100), sizer=FixedBatch(10), idle_after=idle_after)


def ask(here: Reservoir, cost: int = 1, until: float = NEVER, *, tentative: bool = False) -> tuple[Waiter, Fetch]:
    """A caller who comes to a dry reservoir, and what it is told to ask."""
    waiter = Waiter(cost, until, NOBODY, tentative=tentative)
    here.admission.join(waiter)
    fetch = here.step(waiter, 0.0)
    assert isinstance(fetch, Fetch)
    return waiter, fetch


def filled(*, tentative: bool = False, idle_after: float = 10.0) -> tuple[Reservoir, Waiter]:
    """One that holds 9 tokens, and has given 1 to this caller."""
    here = reservoir(idle_after)
    waiter, fetch = ask(here, tentative=tentative)
    here.granted(fetch, answer(10), 0.0, 1.0)
    return here, waiter


def test_what_leaves_is_empty_and_its_figures_are_whole() -> None:
    here, waiter = filled()
    assert isinstance(here.step(waiter, 0.0), Admit)
    assert here.lifecycle.evict()
    assert here.state.is_retired
    assert figures(here) == KeyFigures(admitted=1, calls=1)
    assert here.tokens.take(1) == NO_WAIT
    assert here.forecast.spendable(0.0) == 0
    assert here.lifecycle.due() == NEVER
    assert here.lifecycle.tend(0.0) is None


def test_an_ask_that_is_under_way_keeps_it() -> None:
    here = reservoir()
    waiter, fetch = ask(here)
    waiter.request = None  # another's now, who brings the answer
    here.leave(waiter, 0.0)
    assert not here.lifecycle.evict()
    here.granted(fetch, answer(10), 0.0, 1.0)
    assert here.lifecycle.evict()


def test_tokens_that_travel_back_keep_it() -> None:
    here, _ = filled()
    assert isinstance(here.lifecycle.drain(), GiveBack)
    assert not here.lifecycle.evict()
    here.gave_back(0.0)
    assert here.lifecycle.evict()


def test_a_debt_keeps_it() -> None:
    here, _ = filled()
    here.corrections.debit(20, 0.0)
    assert not here.lifecycle.evict()


def test_a_refund_that_is_owed_keeps_it() -> None:
    here, _ = filled()
    back = here.lifecycle.drain()
    assert here.corrections.refund(Waiter(5, NO_WAIT, NOBODY), 0.0) is None, "it has to wait"
    assert isinstance(back, GiveBack)
    here.gave_back(0.0)
    assert not here.lifecycle.evict()


def test_one_that_holds_tokens_of_several_keys_keeps_it() -> None:
    here, waiter = filled(tentative=True)
    assert not here.lifecycle.evict()
    here.admission.confirm(waiter)
    assert here.lifecycle.evict()


def test_who_wakes_too_late_begins_anew() -> None:
    """It once rejoined the queue of the one that had left, and asked from there: two that ask as one mint tokens."""
    here, waiter = filled()
    assert here.lifecycle.evict()
    assert here.step(waiter, 2.0) == RETIRED
    assert here.state.calls == 1
    here.leave(waiter, 2.0)


def test_who_was_served_and_has_not_looked_keeps_an_idle_one() -> None:
    """A task that holds tokens of one key while it waits for another's."""
    here, waiter = filled(tentative=True, idle_after=0.0)
    for now in (2.0, 5.0, 50.0):
        assert here.lifecycle.due() <= now
        assert here.lifecycle.tend(now) is None
        assert not here.state.is_retired
        assert here.lifecycle.due() > now, "the refresher would come back at once, again and again"
    assert isinstance(here.step(waiter, 50.0), Fetch), "it asks anew, in its old place"


def test_who_wakes_in_time_is_admitted_though_it_left() -> None:
    here, waiter = filled()
    assert here.lifecycle.evict()
    assert isinstance(here.step(waiter, 0.5), Admit)
