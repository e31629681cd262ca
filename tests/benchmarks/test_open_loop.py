"""What is said of calls on a timetable is of all of them, and of no others."""

import time
from array import array
from itertools import count

import pytest

from benchmarks import timetable
from benchmarks.open_loop import Both, observed, open_loop, quantile
from benchmarks.timetable import RATE, Noted, turn


def test_each_call_of_the_timetable_is_made_and_noted_once_however_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timetable, "_LEAD_IN", 0.0)
    made, noted = count(), Noted()
    turn(lambda key: next(made), 0.05, noted)
    assert next(made) == len(noted.took) == len(noted.late) == RATE * 0.05
    assert min(noted.late) >= 0  # none before its time


def test_the_lead_in_is_made_and_not_noted_though_it_was_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timetable, "_LEAD_IN", 0.02)
    made, noted = count(), Noted()

    def call(key: str) -> None:
        next(made)
        time.sleep(0.005)  # more than the 2 ms to a thread's next call

    turn(call, 0.05, noted)
    assert next(made) == RATE * 0.05
    assert len(noted.took) == RATE * 0.03


@pytest.mark.parametrize(("share", "microseconds"), [(0.0, 1), (0.5, 51), (0.99, 100), (1.0, 100)])
def test_a_quantile_is_a_call_that_there_was(share: float, microseconds: int) -> None:
    assert quantile([1000 * each for each in range(100, 0, -1)], share) == microseconds


def test_the_longest_calls_are_counted_for_both() -> None:
    ours = Noted(array("q", [60_000, 1_000, 1_000, 50_000]), array("q", [1] * 4))
    floor = Noted(array("q", [100] * 4), array("q", [1] * 4))
    figures = {figure.name: figure for figure in open_loop(Both(ours, floor, 7), "here")}
    assert figures["open loop: longer than 50 us, calls"].value == 25
    assert figures["open loop: longer than 50 us, of the floor"].value == 0
    assert figures["open loop: a call, p99"].verdict == "short"
    assert figures["open loop: a call, p50"].note == "4,000/s of 8 threads, here; 7 store calls for 4 and lead-ins"


def test_both_are_observed_on_the_same_timetable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.open_loop._TURN", 0.05)
    monkeypatch.setattr(timetable, "_LEAD_IN", 0.0)
    both = observed("memory://", 0.1)
    assert len(both.ours.took) == len(both.floor.took) == RATE * 0.1
    assert both.asks > 0
