"""A line answers by sums what a look at each waiter would say; its work for each does not grow with them."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchlimit.base.waiting import NO_WAIT
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.depths import ALL_LATE, NONE_LATE, Horizon
from batchlimit.reservoir.wait_queue import WaitQueue
from batchlimit.reservoir.waiter import NOBODY, Admit, Refuse, Waiter
from tests.depth import depth
from tests.reservoir.entry import PATIENT, Entry
from tests.reservoir.world import Waking, figures
from tests.work import Work

TOKEN = 0.25
"""Seconds in which one is refilled: binary fractions add up exactly."""
DEADLINES = st.one_of(st.just(NO_WAIT), st.just(math.inf), st.sampled_from([each / 4 for each in range(40)]))
HORIZONS = st.one_of(
    st.sampled_from([NONE_LATE, ALL_LATE]),
    st.builds(lambda until, since: Horizon(until / 4, since / 4, TOKEN), st.integers(0, 40), st.integers(-40, 40)),
)


class Plain:
    """The same line as a list: every question looks at all of them."""

    def __init__(self) -> None:
        self.claims: list[Waiter] = []

    def ahead_of(self, waiter: Waiter) -> int:
        return sum(each.cost + each.beyond for each in self.claims if each.number < waiter.number)

    def is_late(self, waiter: Waiter, horizon: Horizon) -> bool:
        if waiter.event is NOBODY or horizon is NONE_LATE:
            return False
        if horizon is ALL_LATE or waiter.deadline < horizon.until:
            return True
        return horizon.since + (self.ahead_of(waiter) + waiter.cost) * TOKEN > waiter.deadline

    def first_late(self, horizon: Horizon) -> Waiter | None:
        return next((each for each in self.claims if self.is_late(each, horizon)), None)


class Both:
    """A line and its plain twin, to which the same happens."""

    def __init__(self) -> None:
        self.line, self.plain = WaitQueue(), Plain()
        self.gone: list[Waiter] = []
        self.debtor = Waiter(1, math.inf, NOBODY)

    def join(self, waiter: Waiter) -> None:
        self.line.join(waiter)
        self.plain.claims = sorted([*self.plain.claims, waiter], key=lambda each: each.number)

    def leave(self, which: int) -> None:
        if self.plain.claims:
            waiter = self.plain.claims.pop(which % len(self.plain.claims))
            self.line.withdraw(waiter)
            self.gone.append(waiter)

    def come_back(self, which: int) -> None:
        if self.gone:
            self.join(self.gone.pop(which % len(self.gone)))

    def owe(self, cost: int, beyond: int) -> None:
        if self.debtor not in self.line and self.debtor not in self.gone:
            self.join(self.debtor)
        self.line.resize(self.debtor, cost, beyond)

    def check(self, horizon: Horizon) -> None:
        claims = self.plain.claims
        assert list(self.line) == claims
        assert self.line.first is (claims[0] if claims else None)
        assert self.line.leader is next((each for each in claims if each is not self.debtor), None)
        assert self.line.hasty == [each for each in claims if each.deadline == NO_WAIT]
        assert self.line.cost == sum(each.cost for each in claims)
        assert self.line.first_late(horizon) is self.plain.first_late(horizon)
        assert [self.line.is_late(each, horizon) for each in claims if each is not self.debtor] == [
            self.plain.is_late(each, horizon) for each in claims if each is not self.debtor
        ]
        assert list(map(self.line.ahead_of, claims)) == list(map(self.plain.ahead_of, claims))


Step = Callable[[Both], object]
PLACES = st.integers(0, 100)
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.builds(lambda cost, until: lambda both: both.join(Waiter(cost, until, Waking())), st.integers(1, 9), DEADLINES),
    PLACES.map(lambda which: lambda both: both.leave(which)),
    PLACES.map(lambda which: lambda both: both.come_back(which)),
    st.builds(lambda cost, beyond: lambda both: both.owe(cost, beyond), st.integers(1, 9), st.integers(0, 9)),
    HORIZONS.map(lambda horizon: lambda both: both.check(horizon)),
)


@settings(max_examples=depth(100, 300), deadline=None)
@given(st.lists(STEPS, max_size=60), HORIZONS)
def test_a_line_says_what_a_look_at_each_would_say(steps: list[Step], horizon: Horizon) -> None:
    both = Both()
    for step in steps:
        step(both)
    both.check(horizon)


def test_the_first_late_waiter_is_not_one_that_is_just_in_time() -> None:
    """The third one is late by its turn; those before it are in time by less than a token."""
    both = Both()
    for until in (0.25, 0.5, 0.5):
        both.join(Waiter(1, until, Waking()))
    both.check(now := Horizon(0.0, 0.0, TOKEN))
    assert both.line.first_late(now) is both.plain.claims[2]


def test_a_debt_that_grew_is_ahead_of_those_behind_it() -> None:
    both, horizon = Both(), Horizon(1.0, 0.0, TOKEN)
    both.join(Waiter(1, 9.0, Waking()))
    both.owe(3, 2)
    for _ in range(2):
        both.join(Waiter(1, 9.0, Waking()))
    for _ in range(2):
        both.check(horizon)
        both.owe(5, 40)


def test_all_are_late_also_who_would_wait_for_ever() -> None:
    both = Both()
    for _ in range(2):
        both.join(Waiter(1, math.inf, Waking()))
    both.check(ALL_LATE)


def test_who_was_interrupted_before_it_was_in_the_line_of_its_priority_leaves_all_the_same() -> None:
    line, urgent = WaitQueue(), Waiter(1, math.inf, Waking(), priority=10)
    line.join(leader := Waiter(1, math.inf, Waking()))
    urgent.number = line.last = 2
    line.waiters[2] = urgent
    assert line.ahead_of(urgent) == 0
    line.withdraw(urgent)
    assert list(line) == [leader]


def test_who_joins_twice_is_there_once() -> None:
    line, waiter = WaitQueue(), Waiter(3, math.inf, Waking())
    for _ in range(2):
        line.join(waiter)
    assert (line.cost, len(line), line.last) == (3, 1, 1)


def test_a_line_that_everybody_has_left_begins_anew_though_the_last_one_was_interrupted() -> None:
    line = WaitQueue()
    line.join(Waiter(5, NO_WAIT, Waking()))
    line.waiters = {}  # and there it was
    line.join(waiter := Waiter(1, math.inf, Waking()))
    assert (line.cost, line.hasty, line.leader) == (1, [], waiter)


def test_the_numbers_of_those_who_left_do_not_pile_up() -> None:
    line, debtor, leader = WaitQueue(), Waiter(1, math.inf, NOBODY), Waiter(1, math.inf, Waking())
    line.join(debtor)
    line.join(leader)
    for _ in range(200):
        line.join(waiter := Waiter(1, math.inf, Waking()))
        line.withdraw(waiter)
        assert len(line._numbers) <= 2 * len(line) + 64
    assert (line.first, line.leader) == (debtor, leader)


# The work: each story is told for so many callers, and returns what is counted

Story = Callable[[int], Iterator[Callable[[], object]]]
FEW, MANY = 64, depth(512, 1024)
RATE = 8.0
PAUSE = 0.25
"""Seconds after which a bucket that was short is asked again, in any case."""


def _short(entry: Entry, waiter: Waiter, at: float, tokens: int = 0, level: int = 0) -> None:
    entry.grant(entry.fetch(waiter, at), at, tokens=tokens, level=level, retry_after=0.01)
    entry.woken()


def _leave(entry: Entry, waiter: Waiter, leader: Waiter) -> None:
    entry.reservoir.leave(waiter, 0.0)
    entry.step(leader, 0.0)


def test_a_leader_that_is_to_look_for_several_reasons_looks_once() -> None:
    line, leader = WaitQueue(), Waiter(1, math.inf, Waking())
    line.join(leader)
    line.join(other := Waiter(1, math.inf, Waking()))
    line.wake(other)
    for _ in range(3):
        line.wake_leader()
    assert line.to_wake() == [other, leader]
    line.wake_leader()
    assert line.to_wake() == [leader], "for what comes later it looks again"


def _crowd(count: int, deadline: float) -> tuple[Entry, list[Waiter]]:
    entry = Entry(Quota(RATE, 10_000))
    return entry, [entry.join(1, deadline) for _ in range(count)]


def _served_a_few_at_a_time(deadline: float) -> Story:
    def story(count: int) -> Iterator[Callable[[], object]]:
        entry, claims = _crowd(count, deadline)
        for first in range(0, count, 4):
            yield partial(_short, entry, claims[first], first * PAUSE, tokens=4)
        assert all(isinstance(waiter.verdict, Admit) for waiter in claims)

    return story


def _comes_to_a_crowd(count: int) -> Iterator[Callable[[], object]]:
    entry, claims = _crowd(count, 1000.0)
    _short(entry, claims[0], 0.0)
    for _ in range(count):
        yield lambda: entry.step(entry.join(1, 1000.0), 0.001)
    assert figures(entry.reservoir).waiting == 2 * count


def _leaves_from_the_middle(count: int) -> Iterator[Callable[[], object]]:
    entry, claims = _crowd(count, 1000.0)
    _short(entry, claims[0], 0.0)
    for place in range(count // 2, count):
        yield partial(_leave, entry, claims[place], claims[0])
    assert figures(entry.reservoir).waiting == count // 2


def _is_out_of_time(count: int) -> Iterator[Callable[[], object]]:
    entry, claims = _crowd(count, 1000.0)
    _short(entry, claims[0], 999.9)
    for waiter in reversed(claims):
        yield partial(entry.step, waiter, 1000.0)
    assert all(isinstance(waiter.verdict, Refuse) for waiter in claims)


def _turns_out_hopeless(count: int) -> Iterator[Callable[[], object]]:
    """Others take what is refilled: each answer leaves a few of those behind without a chance."""
    entry, claims = _crowd(count, count / RATE)
    for late in range(count // 4):
        yield partial(_short, entry, claims[0], late * PAUSE)
    assert sum(isinstance(waiter.verdict, Refuse) for waiter in claims) >= count // 3


def _takes_the_first_answer(count: int) -> Iterator[Callable[[], object]]:
    entry, claims = _crowd(count, NO_WAIT)
    yield lambda: _short(entry, claims[0], 0.0)
    assert all(isinstance(waiter.verdict, Refuse) for waiter in claims)


STORIES: dict[str, Story] = {
    "is served, and has time": _served_a_few_at_a_time(1000.0),
    "is served, and waits for ever": _served_a_few_at_a_time(PATIENT),
    "comes": _comes_to_a_crowd,
    "leaves": _leaves_from_the_middle,
    "is out of time": _is_out_of_time,
    "turns out hopeless": _turns_out_hopeless,
    "takes the first answer": _takes_the_first_answer,
}


def _work_of(story: Story, count: int) -> float:
    work = Work()
    return sum(map(work.of, story(count))) / count


@pytest.mark.parametrize("name", STORIES)
def test_the_work_for_each_caller_does_not_grow_with_the_crowd(name: str) -> None:
    """But by what is logarithmic: there are 8 times as many here, and a look at all would be 8 times as much work."""
    assert _work_of(STORIES[name], MANY) < 2.2 * _work_of(STORIES[name], FEW)
