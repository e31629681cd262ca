"""An ask waits until those who were just served have confirmed: of a small burst it would hold up the refill."""

import pytest

from batchlimit.quota.quota import Quota
from batchlimit.reservoir.waiter import Admit, Fetch, Wait, Waiter
from tests.reservoir.entry import PATIENT, Entry
from tests.reservoir.world import Waking

ONE = Quota(1.0, 1)


def prompt(cost: int = 1) -> Waiter:
    return Waiter(cost, PATIENT, Waking(), tentative=True, prompt=True)


def served_and_next(quota: Quota = ONE, cost: int = 1) -> tuple[Entry, Waiter, Waiter]:
    """One who was served and has not confirmed, and who is in line behind."""
    entry = Entry(quota)
    served, following = prompt(cost), prompt(cost)
    entry.reservoir.admission.join(served)
    entry.reservoir.admission.join(following)
    entry.grant(entry.fetch(served), 0.0, cost)
    assert served.verdict == Admit(1.0)
    entry.reservoir.to_wake()
    return entry, served, following


def test_an_ask_waits_until_who_was_served_has_confirmed_and_tells_of_it_as_spent() -> None:
    entry, served, following = served_and_next()
    assert entry.step(following) == Wait(None)
    entry.reservoir.admission.confirm(served)
    assert entry.reservoir.to_wake() == [following]
    assert entry.fetch(following).ask.held == 0


def test_who_was_served_and_leaves_too_late_lets_the_next_ask() -> None:
    entry, served, following = served_and_next()
    entry.reservoir.leave(served, 2.0)
    assert following in entry.reservoir.to_wake()
    assert entry.fetch(following, 2.0).ask.held == 0


@pytest.mark.parametrize(("burst", "held_up"), [(1, True), (15, True), (16, False), (1000, False)])
def test_an_ask_waits_where_what_is_about_to_be_spent_is_a_part_of_the_burst_that_matters(
    burst: int, held_up: bool
) -> None:
    entry, _, following = served_and_next(Quota(1.0, burst))
    assert isinstance(entry.step(following), Wait if held_up else Fetch)
    assert entry.reservoir.state.is_held_up == held_up


def test_what_a_caller_of_several_keys_holds_does_not_keep_others_from_asking() -> None:
    """It may hold it for long: until it has the others."""
    entry = Entry(ONE)
    bundle, following = Waiter(1, PATIENT, Waking(), tentative=True), prompt()
    entry.reservoir.admission.join(bundle)
    entry.reservoir.admission.join(following)
    entry.grant(entry.fetch(bundle), 0.0, 1)
    assert entry.fetch(following).ask.held == 1


@pytest.mark.parametrize(("is_prompt", "is_free"), [(True, True), (False, False)])
def test_who_confirms_says_whether_somebody_was_held_up_by_that(is_prompt: bool, is_free: bool) -> None:
    entry = Entry(ONE)
    served = Waiter(1, PATIENT, Waking(), tentative=True, prompt=is_prompt)
    entry.reservoir.admission.join(served)
    entry.grant(entry.fetch(served), 0.0, 1)
    assert [entry.reservoir.admission.confirm(served) for _ in range(2)] == [is_free, False]
