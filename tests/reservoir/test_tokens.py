"""Where tokens lie: laid out for who needs no lock, loose for all others, and never in two places."""

import math
import sysconfig
from collections.abc import Callable
from operator import length_hint

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit.base.waiting import NO_WAIT
from batchlimit.reservoir import tokens as tokens_module
from batchlimit.reservoir.lease import Lease
from batchlimit.reservoir.tokens import FreeTokens
from batchlimit.reservoir.waiter import NOBODY, Waiter
from tests.reservoir.entry import HUNDRED, Entry
from tests.reservoir.world import answer

LEASE = 10.0
MOST = 4096
BY_DEFAULT = tokens_module.MOST


@pytest.fixture(autouse=True)
def with_the_gil(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "MOST", MOST)


def leased(tokens: int, low: int = 0) -> FreeTokens:
    """So many tokens, none of them laid out."""
    made = FreeTokens(LEASE)
    made.add(tokens)
    made.set_low_watermark(low)
    return made


def lie(leased: FreeTokens) -> tuple[int, int]:
    """What is laid out, and what is loose."""
    return length_hint(leased.lock_free), leased.free


def hit(leased: FreeTokens) -> float:
    return next(leased.lock_free, NO_WAIT)


@pytest.mark.parametrize(
    ("tokens", "low", "costs", "lies"),
    [
        (10, 0, [], (0, 10)),
        (10, 0, [1], (9, 0)),
        (10, 4, [1], (5, 4)),  # the low ones are for who notices that they are
        (10, 4, [1, 3], (2, 4)),
        (10, 4, [1, 6], (5, 4)),  # too much: nothing moves
        (10, 0, [3], (0, 7)),  # for several nothing is laid out
        (10, 0, [3, 1, 3], (3, 0)),
        (100, 0, [1, 2], (87, 10)),  # an eighth is picked up for the next one
        (100, 0, [1, 2, 10], (87, 0)),  # and none where as many are loose
        (100, 0, [1, 50], (49, 0)),
        (2 * MOST, 0, [1], (MOST, MOST - 1)),
        (2 * MOST, 0, [1, MOST], (MOST - MOST // 8, MOST // 8 - 1)),
    ],
)
def test_where_they_lie_after_calls(tokens: int, low: int, costs: list[int], lies: tuple[int, int]) -> None:
    some = leased(tokens, low)
    for cost in costs:
        some.take(cost)
    assert lie(some) == lies
    assert not some.is_moving, "each move has an end: whoever sums up without the lock waits for it"


@pytest.mark.parametrize(
    ("costs", "lies"), [([], (0, 14)), ([1], (11, 2)), ([3], (0, 11)), ([3, 1], (8, 2)), ([1, 3], (0, 10))]
)
def test_what_is_taken_one_by_one_is_laid_out_as_it_comes(costs: list[int], lies: tuple[int, int]) -> None:
    """Nobody who takes one has to do that; who takes several finds them loose."""
    some = leased(10)
    for cost in costs:
        some.take(cost)
    some.reclaim()
    some.add(4)
    some.set_low_watermark(2)
    assert lie(some) == lies


def test_a_new_mark_takes_back_what_is_laid_out_below_it() -> None:
    some = leased(20)
    for cost in (1, 3):
        some.take(cost)
    assert lie(some) == (16, 0)
    some.set_low_watermark(18)
    assert lie(some) == (0, 16)
    some = leased(10)
    some.take(1)
    some.set_low_watermark(18)
    assert lie(some) == (0, 9), "nor does who takes one by one find more than there are"


@pytest.mark.parametrize(
    ("low", "cost", "at", "has"),
    [(0, 3, 0.0, True), (0, 4, 0.0, False), (1, 2, 0.0, True), (1, 3, 0.0, False), (0, 3, LEASE, False)],
)
@pytest.mark.parametrize("laid_out", [False, True])
def test_they_are_here_until_their_lease_ends(low: int, cost: int, at: float, has: bool, laid_out: bool) -> None:
    some = leased(4 if laid_out else 3, low)
    if laid_out:
        some.take(1)
    assert some.has(cost, at) is has


def test_each_use_counts_and_each_refusal() -> None:
    some = leased(10)
    some.take(1)
    some.refused += 2
    assert some.uses == 3


def test_tokens_are_laid_out_under_the_gil_and_not_without_it() -> None:
    assert (MOST if sysconfig.get_config_var("Py_GIL_DISABLED") != 1 else 0) == BY_DEFAULT


def test_a_token_of_an_older_lease_does_not_live_longer() -> None:
    some = leased(3)
    some.take(1)
    ready = some.lock_free
    Lease(some, 0.0).borrow(0, LEASE, -5.0)
    assert next(ready, NO_WAIT) == NO_WAIT, "what was laid out was taken back"
    assert some.take(1) == LEASE - 5.0
    ready = some.lock_free
    entry = Entry()
    fetch = entry.fetch(Waiter(1, math.inf, NOBODY))
    Lease(some, 0.0).credit(fetch, answer(1, lease=2.0), 0.0, 0.0, HUNDRED)
    assert (next(ready, NO_WAIT), some.take(1)) == (NO_WAIT, 2.0), "nor after a grant"


def test_who_is_served_knows_that_as_soon_as_its_tokens_are_spent() -> None:
    """An interrupt right after that finds them with it."""
    lease, waiter = Lease(FreeTokens(LEASE), 0.0), Waiter(1, math.inf, NOBODY)
    assert lease.serve(waiter) is waiter.verdict


def reserve(lease: Lease) -> None:
    lease.reserve_for("somebody")


def release(lease: Lease) -> None:
    lease.reserve_for("")


@pytest.mark.parametrize("change", [reserve, Lease.take_all, Lease.report, release])
def test_what_is_given_to_others_is_taken_back_first(change: Callable[[Lease], object]) -> None:
    some = leased(10)
    some.take(1)
    ready = some.lock_free
    change(Lease(some, 0.0))
    is_given = change in (reserve, Lease.take_all)
    assert (next(ready, NO_WAIT) == NO_WAIT, hit(some) == NO_WAIT) == (is_given, is_given)


class Watched(FreeTokens):
    """Somebody hits just before the tokens that are laid out are taken back."""

    __slots__ = ("hits",)

    def reclaim(self) -> int:
        self.hits = getattr(self, "hits", 0) + (hit(self) != NO_WAIT)
        return super().reclaim()


def test_what_is_hit_while_it_is_emptied_does_not_go_back_as_well() -> None:
    some = Watched(LEASE)
    some.add(10)
    some.take(1)
    assert Lease(some, 0.0).take_all() + some.hits + 1 == 10
    assert some.spent == some.hits + 1


def test_a_step_after_the_end_is_counted_until_its_taker_says_so() -> None:
    some = leased(10)
    lease = Lease(some, 0.0)
    some.take(1)
    ready = some.lock_free
    hit(some)
    lease.advance(LEASE)
    assert (next(ready, NO_WAIT), hit(some), some.spent, lease.held) == (NO_WAIT, NO_WAIT, 2, 0)
    some.took_late(1)
    assert some.spent == 1


def test_without_the_gil_nothing_is_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """There a step is not one to other threads; and everything works by the lock."""
    monkeypatch.setattr(tokens_module, "MOST", 0)
    some = leased(10, low=2)
    assert [some.take(cost) for cost in (1, 3, 1, 3, 1)] == [LEASE, LEASE, LEASE, LEASE, NO_WAIT]
    assert lie(some) == (0, 2)


def test_one_that_is_disowned_has_nothing_for_who_takes_no_lock() -> None:
    some = leased(10)
    some.take(1)
    some.denied_until = math.inf
    some.disown()
    assert (hit(some), some.denied_until) == (NO_WAIT, -math.inf)


STEPS = st.one_of(
    st.integers(1, 30).map(lambda cost: lambda lease: -cost if lease._tokens.take(cost) != NO_WAIT else 0),
    st.just(lambda lease: -1 if hit(lease._tokens) != NO_WAIT else 0),
    st.integers(0, 20).map(lambda low: lambda lease: lease._tokens.set_low_watermark(low)),
    st.sampled_from([reserve, release]),
    st.just(lambda lease: lease._tokens.reclaim() and 0),
    st.integers(1, 50).map(lambda more: lambda lease: lease._tokens.add(more) or more),
)


@given(st.integers(0, 200), st.lists(STEPS, max_size=40))
def test_tokens_are_only_moved(tokens: int, steps: list[Callable[[Lease], int | None]]) -> None:
    lease = Lease(leased(tokens), 0.0)
    spent = 0
    for step in steps:
        change = step(lease) or 0
        tokens += change
        spent -= min(change, 0)
        assert lease.held == tokens
        assert lease._tokens.spent == spent
        assert lease._tokens.free >= 0
