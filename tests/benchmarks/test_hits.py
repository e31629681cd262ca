"""What is said of hits is of what was timed, in turn."""

import threading
from itertools import count

import pytest

from benchmarks.crowd import together
from benchmarks.floor import Floor, in_turn, timed
from benchmarks.hits import FLOOR, blocks, hit


def test_the_floor_gives_what_it_has_and_no_more() -> None:
    bare = Floor(2)
    assert [bare.try_acquire("hot") for _ in range(3)] == [True, True, False]


def test_a_statement_is_run_as_often_as_it_is_timed() -> None:
    made = count()
    assert timed("next(made)", made=made)(100) > 0
    assert next(made) == 100


def test_all_take_turns_and_each_begins_a_round() -> None:
    asked: list[str] = []

    def note(name: str, seconds: float) -> float:
        asked.append(name)
        return seconds

    rounds = in_turn({"a": lambda calls: note("a", calls * 2e-9), "b": lambda calls: note("b", calls * 3e-9)}, 2, 10)
    assert list(rounds) == [pytest.approx({"a": 2, "b": 3})] * 2
    assert asked == ["b", "a", "a", "b"]


def test_all_calls_of_a_crowd_are_counted() -> None:
    here, made = set(), count()

    def call(calls: int) -> float:
        here.add(threading.get_ident())
        for _ in range(calls):
            next(made)
        return 0.0

    assert together(call, 4, 0.0) > 0
    assert len(here) == 4
    assert next(made) == 4000


def test_every_kind_of_hit_has_a_time_and_a_ratio() -> None:
    values = {figure.name: figure.value for figure in hit("memory://", 1)}
    ratio = values["hit: await try_acquire(key)"] / values[f"hit: {FLOOR}"]
    assert values["hit: await try_acquire(key) / floor"] == pytest.approx(ratio)
    assert len(values) % 2 == 1  # the floor has no ratio to itself
    assert all(value > 0 for value in values.values())


def test_hits_leave_nothing_in_memory() -> None:
    assert [figure.value for figure in blocks("memory://")] == [0, 0]
