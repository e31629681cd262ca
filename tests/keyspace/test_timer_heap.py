"""Plans: each thing at its time, whatever was planned before, and of stale plans no more than of live ones, about."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit.keyspace.timer_heap import TimerHeap


class Thing:
    def __init__(self, due: float) -> None:
        self.due = due


def taken(plans: TimerHeap[Thing], now: float) -> list[float]:
    """When those were due that are due by now."""
    found = []
    while (thing := plans.take(now)) is not None:
        found.append(thing.due)
        thing.due = math.inf
    return found


def due_by(things: list[Thing], now: float) -> list[float]:
    return sorted(each.due for each in things if each.due <= now)


@given(st.lists(st.tuples(st.sampled_from(["add", "move", "drop", "take"]), st.integers(0, 99)), max_size=400))
def test_they_are_a_sorted_list_of_what_is_due(steps: list[tuple[str, int]]) -> None:
    plans: TimerHeap[Thing] = TimerHeap()
    things: list[Thing] = []
    for step, number in steps:
        if step == "add" or not things:
            things.append(Thing(float(number)))
            plans.add(things[-1])
        elif step == "take":
            due = due_by(things, number)
            assert taken(plans, number) == due
        else:
            things[number % len(things)].due = math.inf if step == "drop" else float(number)
            if step == "move":
                plans.add(things[number % len(things)])
    due = due_by(things, 99.0)
    assert taken(plans, 99.0) == due


@pytest.mark.parametrize("live", [0, 10, 1000])
def test_no_more_are_kept_than_three_times_as_many_as_are_live(live: int) -> None:
    plans: TimerHeap[Thing] = TimerHeap()
    kept = [Thing(1.0 * i) for i in range(live)]
    for each in kept:
        plans.add(each)
    for i in range(20_000):
        passing = Thing(1e6 - i)
        plans.add(passing)
        passing.due = math.inf
        assert len(plans) <= max(128, 3 * live)
    assert taken(plans, 1e6) == [float(i) for i in range(live)]


class Watched(Thing):
    """Notes how often somebody looks when it is due."""

    looks = 0

    @property
    def due(self) -> float:
        Watched.looks += 1
        return self.at

    @due.setter
    def due(self, at: float) -> None:
        self.at = at


def test_where_all_plans_are_live_each_is_tidied_up_twice_at_most_on_average() -> None:
    plans: TimerHeap[Thing] = TimerHeap()
    for i in range(20_000):
        plans.add(Watched(float(i)))
    assert Watched.looks <= 3 * 20_000  # one of them to add it


@pytest.mark.parametrize("count", [63, 64, 65, 70, 80, 130, 150])
def test_while_plans_are_tidied_up_they_are_in_order_and_can_be_forgotten(count: int) -> None:
    plans: TimerHeap[Thing] = TimerHeap()
    dues = [float(i * 37 % 101) for i in range(count)]
    for _ in range(2):
        for due in dues:
            plans.add(Thing(due))
        assert plans.first_at == 0.0
        assert taken(plans, 50.0) == sorted(due for due in dues if due <= 50.0)
        plans.clear()
        assert (len(plans), plans.take(math.inf)) == (0, None)
