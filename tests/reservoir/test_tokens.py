"""Where tokens lie: laid out for who needs no lock, loose for all others, and never in two places."""

import math
from collections.abc import Callable
from operator import length_hint

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit.reservoir import tokens as stock_module
from batchlimit.reservoir.debt import NO_OVERDRAFT
from batchlimit.reservoir.tokens import LeasedTokens
from batchlimit.reservoir.wait_queue import WaitQueue
from batchlimit.reservoir.waiter import Admit, Waiter
from batchlimit.waiting import NO_WAIT
from tests.reservoir.world import Bell

LEASE = 10.0
MOST = 4096


@pytest.fixture(autouse=True)
def with_the_gil(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock_module, "MOST", MOST)


def leased(tokens: int, low: int = 0) -> LeasedTokens:
    """So many tokens, none of them laid out."""
    made = LeasedTokens(0.0)
    made.borrow(tokens, LEASE, 0.0)
    made.serve(WaitQueue(), None)  # type: ignore[arg-type]  # nobody is in line
    made.set_low_watermark(low)
    return made


def lie(leased: LeasedTokens) -> tuple[int, int]:
    """What is laid out, and what is loose."""
    return length_hint(leased.lock_free), leased.free


def hit(leased: LeasedTokens) -> float:
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


@pytest.mark.parametrize(
    ("costs", "lies"), [([], (0, 14)), ([1], (11, 2)), ([3], (0, 11)), ([3, 1], (8, 2)), ([1, 3], (0, 10))]
)
def test_what_is_taken_one_by_one_is_laid_out_as_it_comes(costs: list[int], lies: tuple[int, int]) -> None:
    """Nobody who takes one has to do that; who takes several finds them loose."""
    some = leased(10)
    for cost in costs:
        some.take(cost)
    some.reclaim()
    some.free, some._base = some.free + 4, some._base + 4
    some.set_low_watermark(2)
    assert lie(some) == lies


def test_who_takes_a_step_has_until_the_lease_ends() -> None:
    some = leased(3)
    assert some.take(1) == LEASE
    assert [hit(some) for _ in range(4)] == [LEASE, LEASE, NO_WAIT, NO_WAIT]


def test_a_token_of_an_older_lease_does_not_live_longer() -> None:
    some = leased(3)
    some.take(1)
    ready = some.lock_free
    some.borrow(0, LEASE, 5.0)
    assert next(ready, NO_WAIT) == NO_WAIT, "what was laid out was taken back"
    assert some.take(1) == 5.0 + LEASE


@pytest.mark.parametrize(
    "change",
    [LeasedTokens.reclaim, LeasedTokens.set_aside, LeasedTokens.take_all, LeasedTokens.forfeit, LeasedTokens.pay_back],
)
def test_what_is_given_to_others_is_taken_back_first(change: Callable[[LeasedTokens], object]) -> None:
    some = leased(10)
    some.take(1)
    ready = some.lock_free
    change(some)
    assert next(ready, NO_WAIT) == NO_WAIT
    assert hit(some) == NO_WAIT


class Watched(LeasedTokens):
    """Somebody hits whenever it was just looked at how much is leased."""

    __slots__ = ("hits",)

    @property
    def leased(self) -> int:
        seen = self.held
        self.hits = getattr(self, "hits", 0) + (hit(self) != NO_WAIT)
        return seen


def test_what_is_hit_while_it_is_emptied_does_not_go_back_as_well() -> None:
    some = Watched(0.0)
    some._add(10)
    some.expires = LEASE
    some.serve(WaitQueue(), None)  # type: ignore[arg-type]
    some.take(1)
    assert some.take_all() + some.hits + 1 == 10
    assert some.spent == some.hits + 1


def test_a_step_is_counted_where_it_was_taken() -> None:
    some = leased(10)
    some.take(1)
    hit(some)
    assert (some.spent, some.count_spent(1.0), some.count_spent(1.0), some.admitted) == (2, 2, 0, 2)


def test_a_step_after_the_end_is_counted_until_its_taker_says_so() -> None:
    some = leased(10)
    some.take(1)
    assert some.count_spent(LEASE) == 1
    ready = some.lock_free
    some.advance(LEASE)
    assert (next(ready, NO_WAIT), hit(some), some.spent, some.here) == (NO_WAIT, NO_WAIT, 1, 0)


def test_a_late_taker_uncounts_what_it_took() -> None:
    some = leased(10)
    some.take(1)
    hit(some)
    some.count_spent(LEASE)
    some.advance(LEASE)
    some.took_late(1)
    assert some.spent == 1


def test_without_the_gil_nothing_is_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """There a step is not one to other threads; and everything works by the lock."""
    monkeypatch.setattr(stock_module, "MOST", 0)
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
    st.integers(1, 30).map(lambda cost: lambda leased: -cost if leased.take(cost) != NO_WAIT else 0),
    st.just(lambda leased: -1 if hit(leased) != NO_WAIT else 0),
    st.integers(0, 20).map(lambda low: lambda leased: leased.set_low_watermark(low)),
    st.sampled_from([LeasedTokens.reclaim, LeasedTokens.set_aside]),
    st.just(lambda leased: leased.serve(WaitQueue(), None)),
    st.integers(1, 50).map(lambda more: lambda leased: leased._add(more) or more),
    st.just(lambda leased: leased.count_spent(1.0) and 0),
)


@given(st.integers(0, 200), st.lists(STEPS, max_size=40))
def test_tokens_are_only_moved(tokens: int, steps: list[Callable[[LeasedTokens], int | None]]) -> None:
    some = leased(tokens)
    spent = 0
    for step in steps:
        change = step(some) or 0
        tokens += change
        spent -= min(change, 0)
        assert (some.here, some.spent) == (tokens, spent)
        assert some.free >= 0


def test_who_was_served_by_somebody_who_was_interrupted_is_served_once() -> None:
    some, line = leased(10), WaitQueue()
    first, second = (Waiter(cost, math.inf, Bell(), tentative=True) for cost in (11, 3))
    for each in first, second:
        line.join(each)
    first.verdict = Admit(LEASE)  # and then the interrupt came
    some.serve(line, NO_OVERDRAFT.waiter)
    assert len(line) == 0
    assert isinstance(second.verdict, Admit)
    assert (some.here, some._pledged) == (7, 3)
