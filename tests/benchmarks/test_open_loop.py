"""What is said of calls on a timetable is of all of them, and of no others."""

from array import array

import pytest

from benchmarks import timetable
from benchmarks.open_loop import Both, observed, open_loop
from benchmarks.timetable import RATE, Noted


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
