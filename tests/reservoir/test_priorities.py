"""Waiters of several priorities: the urgent pass the others, which keep their part, and nobody saves turns up."""

import math
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchlimit.quota.quota import Quota
from batchlimit.reservoir.wait_queue import WaitQueue
from batchlimit.reservoir.waiter import NOBODY, Admit, Refuse, Waiter
from tests.depth import depth
from tests.reservoir.entry import Entry
from tests.reservoir.world import Waking

URGENT = 10


def joined(queue: WaitQueue, number: int, priority: int, cost: int = 1) -> list[Waiter]:
    waiters = [Waiter(cost, math.inf, Waking(), priority=priority) for _ in range(number)]
    for each in waiters:
        queue.join(each)
    return waiters


def serve(queue: WaitQueue, number: int) -> list[Waiter]:
    served = []
    for _ in range(number):
        first = queue.first
        assert first is not None
        queue.dismiss(first, Admit(math.inf))
        served.append(first)
    return served


def of(priority: int, waiters: Iterable[Waiter]) -> list[Waiter]:
    return [each for each in waiters if each.priority == priority]


def test_tokens_are_shared_by_priority_while_all_wait() -> None:
    queue = WaitQueue()
    batch, urgent = joined(queue, 300, 1), joined(queue, 300, URGENT)
    served = serve(queue, 110)
    assert of(1, served) == batch[:10]
    assert of(URGENT, served) == urgent[:100]


@pytest.mark.parametrize(
    ("lines", "turns"),
    [
        ([(1, 1), (2, 1)], [2, 2, 1, 2, 2, 1, 2, 2, 1]),
        ([(2, 1), (1, 1)], [2, 2, 1, 2, 2, 1, 2, 2, 1]),
        ([(2, 1), (4, 1)], [4, 4, 2, 4, 4, 2, 4, 4, 2]),
        ([(1, 1), (2, 4)], [1, 2, 1, 1, 2, 1, 1, 2, 1]),
    ],
)
def test_lines_take_turns_by_their_priorities_and_costs(lines: list[tuple[int, int]], turns: list[int]) -> None:
    """Whose tokens would be served first is next; of equals the more urgent one."""
    queue = WaitQueue()
    for priority, cost in lines:
        joined(queue, 9, priority, cost)
    assert [each.priority for each in serve(queue, 9)] == turns


def test_callers_that_left_unserved_cost_nobody_behind_them_a_turn() -> None:
    queue = WaitQueue()
    for each in joined(queue, 1000, 1):
        queue.withdraw(each)
        joined(queue, 1, URGENT)
    gone, (stays,) = joined(queue, 1000, 1), joined(queue, 1, 1)
    for each in gone:
        queue.dismiss(each, Refuse(1.0))
    assert stays in serve(queue, 12)


def test_nobody_saves_turns_up() -> None:
    queue = WaitQueue()
    joined(queue, 1000, URGENT)
    serve(queue, 500)
    batch = joined(queue, 100, 1)
    assert len(of(1, serve(queue, 110))) in (9, 10, 11)
    assert batch[0] not in queue


def test_who_comes_alone_after_many_urgent_ones_has_no_turn_saved_up() -> None:
    queue = WaitQueue()
    joined(queue, 1000, URGENT)
    serve(queue, 500)
    (one,) = joined(queue, 1, 1)
    assert one not in serve(queue, 5)


def test_a_debt_is_paid_before_those_of_its_line_that_came_later() -> None:
    queue = WaitQueue()
    (before,), debt = joined(queue, 1, 1), Waiter(3, math.inf, NOBODY)
    queue.join(debt)
    (urgent,), (after,) = joined(queue, 1, URGENT), joined(queue, 1, 1)
    order = [serve(queue, 1)[0] for _ in range(2)]
    assert order == [urgent, before]
    assert queue.first is debt
    assert queue.leader is after
    queue.withdraw(debt)
    assert queue.first is after


def test_who_is_late_is_found_in_each_line() -> None:
    queue = WaitQueue()
    joined(queue, 100, 1)
    urgent = joined(queue, 3, URGENT)
    assert queue.ahead_of(urgent[2]) == 2
    late = Waiter(1, 5.0, Waking(), priority=URGENT)
    queue.join(late)
    entry = Entry(Quota(1.0, 1))
    waiting = [entry.join(1) for _ in range(3)]
    entry.refuse(entry.fetch(waiting[0]), retry_after=1.0)
    hurried = Waiter(1, 2.0, Waking(), priority=URGENT)
    entry.reservoir.admission.join(hurried)
    assert not isinstance(entry.step(hurried, 0.1), Refuse), "two callers of priority 1 do not hold it up"


STEPS = st.lists(st.tuples(st.sampled_from([0, 1, 2, 7]), st.integers(1, 5), st.integers(0, 50)), max_size=80)


@settings(max_examples=depth(100, 500), deadline=None)
@given(STEPS)
def test_each_line_keeps_its_order_and_all_are_found(steps: list[tuple[int, int, int]]) -> None:
    queue, waiting = WaitQueue(), list[Waiter]()
    for priority, cost, which in steps:
        if priority:
            waiting += joined(queue, 1, priority, cost)
        elif waiting and which % 3:
            queue.withdraw(waiting.pop(which % len(waiting)))
        elif waiting:
            (served,) = serve(queue, 1)
            assert served is of(served.priority, waiting)[0]
            waiting.remove(served)
        assert list(queue) == waiting
        assert queue.cost == sum(each.cost for each in waiting)
        assert (queue.leader is not None) == bool(waiting)
        assert queue.highest_priority == max((each.priority for each in waiting), default=1)
        for each in waiting:
            line = of(each.priority, waiting)
            assert queue.ahead_of(each) == sum(other.cost for other in line[: line.index(each)])
