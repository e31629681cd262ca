"""The usual miss in one go does what the reservoir's rules do: the two are held against each other here."""

import itertools
import math
from collections.abc import Callable
from itertools import repeat
from operator import length_hint
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchlimit.bucket.messages import GiveBack, Grant
from batchlimit.quota.quota import Quota
from batchlimit.reservoir import express
from batchlimit.reservoir.failure_policy import CLOSED, CircuitOpen, FailurePolicy
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.sizing import BatchSizer, FixedBatch, TimeBatch
from batchlimit.reservoir.waiter import Fetch, Waiter
from batchlimit.waiting import NO_WAIT
from tests.depth import depth
from tests.fields import fields_of
from tests.reservoir.front import DEAD, HUNDRED
from tests.reservoir.world import Bell, answer, made

SEVERAL = HUNDRED & Quota(1.0, 40)
YOUNGER = Quota(50.0, 20)
Pair = tuple[Waiter, Waiter]


class Twins:
    """Two reservoirs that see the same: callers come to one by the short way where there is one, to the other never."""

    def __init__(self, quota: Quota, sizer: BatchSizer, policy: FailurePolicy = CLOSED) -> None:
        self.short, self.long = self.both = [made(quota, sizer=sizer, policy=policy) for _ in range(2)]
        self.now = 0.0
        self.pairs: list[Pair] = []
        self.asking: tuple[Pair | None, Fetch] | None = None
        self.shortcuts = 0

    def each(self, act: Callable[[Reservoir], Any]) -> Any:
        """Do the same to both."""
        mine, other = map(act, self.both)
        assert mine == other
        return mine

    def arrive(self, cost: int, deadline: float, tentative: bool = False) -> None:
        mine, other = (Waiter(cost, deadline, Bell(), tentative=tentative) for _ in self.both)
        self.pairs.append((mine, other))
        fetch = express.ask(self.short, mine, self.now)
        self.shortcuts += fetch is not None
        step = self.joined(self.short, mine) if fetch is None else fetch
        self.heed((mine, other), step, self.joined(self.long, other))

    def joined(self, reservoir: Reservoir, waiter: Waiter) -> Any:
        reservoir.admission.join(waiter)
        return reservoir.step(waiter, self.now)

    def heed(self, pair: Pair | None, mine: Any, other: Any) -> None:
        assert _plain(mine) == _plain(other)
        if isinstance(mine, Fetch):
            self.asking = pair, mine
        self.check()

    def look(self, which: int) -> None:
        """One of those who still have something to learn looks again."""
        if waiting := [pair for pair in self.pairs if pair[0].verdict is None]:
            pair = waiting[which % len(waiting)]
            steps = [each.step(waiter, self.now) for each, waiter in zip(self.both, pair, strict=True)]
            self.heed(pair, *steps)

    def answer(self, grant: Grant, jitter: float) -> None:
        if self.asking is None:
            return
        (pair, _), self.asking = self.asking, None
        fetches = [each.state.in_flight for each in self.both]
        served = False
        if pair is not None and isinstance(fetches[0], Fetch):
            served = express.serve(self.short, pair[0], fetches[0], grant, self.now, jitter)
            self.shortcuts += served
        for each, fetch in list(zip(self.both, fetches, strict=True))[served:]:
            if isinstance(fetch, Fetch):
                each.granted(fetch, grant, self.now, jitter)
        self.check()

    def fail(self, error: Exception | None) -> None:
        if self.asking is not None:
            self.asking = None
            for each in self.both:
                if isinstance(each.state.in_flight, Fetch):
                    each.failed(each.state.in_flight, error, self.now)
        self.check()

    def interrupt(self, which: int) -> None:
        if self.pairs:
            for each, waiter in zip(self.both, self.pairs.pop(which % len(self.pairs)), strict=True):
                each.leave(waiter, self.now)
            if self.short.state.in_flight is None:
                self.asking = None
        self.check()

    def tend(self) -> None:
        if not self.short.is_retired:
            found = self.each(lambda reservoir: reservoir.lifecycle.tend(self.now))
            if isinstance(found, GiveBack):
                self.each(lambda reservoir: reservoir.gave_back(self.now))
            self.heed(None, found, found)

    def refuse(self) -> None:
        """As a caller does who is refused from memory, without the lock."""
        for each in self.both:
            each.tokens.refused += 1

    def refund(self, tokens: int) -> None:
        back = self.each(lambda reservoir: reservoir.refund(Waiter(tokens, NO_WAIT, Bell()), self.now))
        if back is not None:
            self.each(lambda reservoir: reservoir.gave_back(self.now))
        self.check()

    def debit(self, tokens: int) -> None:
        self.each(lambda reservoir: reservoir.debit(tokens, self.now))

    def check(self) -> None:
        woken = [{self.place(waiter, i) for waiter in each.to_wake()} for i, each in enumerate(self.both)]
        self.each(lambda reservoir: reservoir.tokens.denied_until)
        self.each(lambda reservoir: reservoir.lifecycle.due())
        self.each(_plain)
        for mine, other in self.pairs:
            assert _plain(mine) == _plain(other)
        asker = {i for i, pair in enumerate(self.pairs) if pair[0].verdict is not None}
        assert woken[0] - asker == woken[1] - asker

    def place(self, waiter: Waiter, side: int) -> int:
        return next((i for i, pair in enumerate(self.pairs) if pair[side] is waiter), -1)


IGNORED = {"event", "_awake", "_instance", "_options", "_policy", "_state", "_prefetch", "_forecast"}
IGNORED |= {"_admission", "_requests"}  # the parts that another part was given


def _plain(value: Any) -> Any:
    """An object of the core by its fields, what is laid out by how much that is, anything else as it is."""
    if isinstance(value, repeat):
        return length_hint(value)
    if isinstance(value, Exception):
        return repr(value)
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not type(value).__module__.startswith("batchlimit.") or isinstance(value, Quota | tuple):
        return value
    names = fields_of(type(value)) or vars(value)
    return {name: _plain(getattr(value, name)) for name in names if name not in IGNORED}


def _answer(share: float, kept: bool, at: dict[str, Any], jitter: float) -> Callable[[Twins], object]:
    def run(twins: Twins) -> None:
        if twins.asking is not None:
            told = twins.asking[1].ask
            granted = math.floor(told.want * share)
            granted = granted if granted >= told.need else 0
            twins.answer(answer(granted, kept=told.held if kept else 0, **at), jitter)

    return run


def _pass(seconds: float) -> Callable[[Twins], object]:
    def run(twins: Twins) -> None:
        twins.now += seconds

    return run


def _spend(twins: Twins, left: int = 0) -> None:
    """Callers who find tokens take all but so many."""
    twins.each(lambda reservoir: reservoir.tokens.take(max(1, reservoir.tokens.available - left)))


PATIENCE = st.sampled_from([NO_WAIT, NO_WAIT, math.inf, 0.0, 0.5, 3.0, 20.0])
RICH: dict[str, Any] = {}
AT = st.one_of(
    st.just(RICH),
    st.fixed_dictionaries(
        {},
        optional={
            "level": st.integers(0, 100),
            "starts_in": st.sampled_from([0.0, 0.0, 0.2]),
            "lease": st.sampled_from([0.0, 0.1, 1.0]),
            "active_instances": st.integers(1, 20),
            "epoch": st.integers(7, 9),
            "retry_after": st.sampled_from([0.0, 0.5]),
            "quota": st.sampled_from([None, None, YOUNGER]),
        },
    ),
)
ANSWERS = st.builds(_answer, st.sampled_from([1.0, 1.0, 0.5, 0.0]), st.booleans(), AT, st.floats(0.75, 1.25))
ARRIVALS = st.builds(
    lambda cost, until, tentative: lambda twins: twins.arrive(cost, twins.now + until, tentative),
    st.sampled_from([1, 1, 1, 2, 10, 100]),
    PATIENCE,
    st.sampled_from([False, False, True]),
)
SECONDS = st.sampled_from([0.0001, 0.01, 0.05, 0.3, 1.0, 5.0, 60.0])
MISSES = st.tuples(st.just(_spend), SECONDS.map(_pass), ARRIVALS, SECONDS.map(_pass), ANSWERS)
STEPS = st.one_of(
    MISSES,
    MISSES,
    ARRIVALS.map(lambda step: (step,)),
    ANSWERS.map(lambda step: (step,)),
    SECONDS.map(lambda seconds: (_pass(seconds),)),
    st.integers(0, 5).map(lambda left: (lambda twins: _spend(twins, left),)),
    st.integers(0, 5).map(lambda which: (lambda twins: twins.look(which),)),
    st.integers(0, 5).map(lambda which: (lambda twins: twins.interrupt(which),)),
    st.sampled_from([DEAD, None, CircuitOpen("given up")]).map(lambda error: (lambda twins: twins.fail(error),)),
    st.integers(1, 10).map(lambda tokens: (lambda twins: twins.refund(tokens),)),
    st.integers(1, 10).map(lambda tokens: (lambda twins: twins.debit(tokens),)),
    st.just((Twins.tend,)),
    st.just((Twins.refuse,)),
)


@settings(max_examples=depth(100, 400), deadline=None)
@given(
    st.sampled_from([HUNDRED, SEVERAL, Quota(1.0, 2), Quota(0.0, 0)]),
    st.sampled_from([FixedBatch(1), FixedBatch(20), TimeBatch()]),
    st.sampled_from([CLOSED, FailurePolicy.local(instances=2), FailurePolicy.open()]),
    st.lists(STEPS, max_size=30),
)
def test_the_short_way_does_what_the_rules_do(
    quota: Quota, sizer: BatchSizer, policy: FailurePolicy, steps: list[tuple[Callable[[Twins], object], ...]]
) -> None:
    twins = Twins(quota, sizer, policy)
    for step in itertools.chain.from_iterable(steps):
        if not twins.short.is_retired:
            step(twins)
            twins.check()


# Each way, once, so that the property cannot pass by never coming there


def alone() -> Twins:
    """A bucket is asked for the first of twenty tokens."""
    twins = Twins(HUNDRED, FixedBatch(20))
    twins.arrive(1, NO_WAIT)
    assert twins.shortcuts == 1
    return twins


def test_who_is_alone_asks_and_is_served_by_the_short_way() -> None:
    twins = alone()
    twins.answer(answer(20), 1.0)
    assert twins.shortcuts == 2
    assert [waiter.is_good(0.5) for waiter in twins.pairs[0]] == [True, True]
    assert twins.short.statistics.held == 19


def test_who_is_no_longer_alone_is_served_by_the_rules() -> None:
    twins = alone()
    twins.arrive(2, math.inf)
    twins.answer(answer(20), 1.0)
    assert twins.shortcuts == 1
    assert all(mine.is_good(0.5) for mine, _ in twins.pairs)


@pytest.mark.parametrize(
    "grant",
    [answer(0, retry_after=1.0), answer(20, starts_in=0.2), answer(20, lease=0.0), answer(20, quota=YOUNGER)],
    ids=["too few", "later", "too late", "another quota"],
)
def test_what_does_not_simply_serve_is_for_the_rules(grant: Grant) -> None:
    twins = alone()
    twins.answer(grant, 1.0)
    assert twins.shortcuts == 1


def test_nobody_asks_alone_where_there_are_tokens_or_a_pause_or_an_ask() -> None:
    twins = alone()
    twins.arrive(1, NO_WAIT)
    twins.answer(answer(20), 1.0)
    twins.arrive(1, NO_WAIT)
    twins.now = 1.0
    twins.arrive(100, NO_WAIT)
    twins.answer(answer(0, retry_after=5.0, level=0), 1.0)
    twins.arrive(100, math.inf)
    assert twins.shortcuts == 1


def test_what_comes_later_is_waited_for() -> None:
    twins = alone()
    twins.answer(answer(20, starts_in=0.5), 1.0)
    twins.interrupt(0)
    twins.refund(1)  # it ends the pause
    twins.arrive(1, math.inf)
    assert twins.asking is None


def test_nobody_asks_where_tokens_are_laid_out() -> None:
    twins = alone()
    twins.answer(answer(20), 1.0)
    twins.each(lambda reservoir: reservoir.tokens.take(1))
    assert twins.short.tokens.free == 0
    twins.arrive(1, NO_WAIT)
    assert twins.asking is None


def test_who_comes_too_late_or_to_a_reservoir_that_has_retired_asks_nothing() -> None:
    twins = Twins(HUNDRED, FixedBatch(20))
    twins.arrive(1, 0.0)
    twins.each(lambda reservoir: reservoir.lifecycle.evict())
    assert express.ask(twins.short, Waiter(1, NO_WAIT, Bell()), 0.0) is None
    assert twins.shortcuts == 0


def test_what_is_admitted_without_the_store_is_counted_as_that() -> None:
    twins = Twins(HUNDRED, FixedBatch(20), FailurePolicy.local(instances=2))
    twins.arrive(1, NO_WAIT)
    twins.fail(DEAD)
    _spend(twins)
    twins.arrive(1, NO_WAIT)
    assert twins.short.state.fallback.admitted > 1
    twins.answer(answer(1), 1.0)
    assert twins.shortcuts == 1


def test_a_share_that_has_filled_up_again_is_forgotten() -> None:
    twins = Twins(HUNDRED, FixedBatch(20), FailurePolicy.local(instances=2))
    twins.arrive(1, NO_WAIT)
    twins.fail(DEAD)
    twins.now = 0.1
    twins.arrive(100, NO_WAIT)
    twins.answer(answer(100), 1.0)
    assert twins.short.state.fallback.bucket is not None
    twins.now = 60.0
    twins.arrive(1, NO_WAIT)
    twins.answer(answer(1), 1.0)
    assert twins.short.state.fallback.bucket is None


def test_an_answer_after_the_end_serves_nobody() -> None:
    twins = alone()
    for each in twins.both:
        each.lifecycle.close(DEAD, Waiter(0, NO_WAIT, Bell()))
    twins.answer(answer(20), 1.0)
    assert twins.shortcuts == 1


def test_an_answer_that_comes_after_another_ask_has_begun_serves_nobody() -> None:
    twins = alone()
    assert twins.asking is not None
    pair, late = twins.asking
    assert pair is not None
    twins.interrupt(0)
    twins.arrive(1, NO_WAIT)
    assert not express.serve(twins.short, pair[0], late, answer(20), 0.0, 1.0)
    twins.answer(answer(20), 1.0)
    assert twins.pairs[0][0].is_good(0.5)
