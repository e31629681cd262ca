"""The guard's arithmetic: which ratio it takes, and when it says that one has become worse."""

import json
from pathlib import Path

import pytest

from benchmarks import record
from benchmarks.asks import PING, PLAIN, misses, scripts
from benchmarks.guard import UNSEEN, Race, _judged, main
from benchmarks.record import Row, compare, quickest, ratios
from tests.servers import Server


@pytest.mark.parametrize(
    ("now", "then", "verdict", "fails"),
    [
        (1.0, 1.0, "ok", False),
        (1.3, 1.0, "ok", False),
        (1.31, 1.0, "worse", True),
        (0.1, 1.0, "better", True),
        (1.0, None, "new", False),
        (None, 1.0, "gone", True),
    ],
)
def test_a_ratio_fails_that_is_worse_by_more_than_the_tolerance_or_is_gone(
    now: float | None, then: float | None, verdict: str, fails: bool
) -> None:
    row = Row("a hit", now, then)
    assert (row.verdict, row.fails) == (verdict, fails)


def test_the_rows_that_fail_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert _judged([Row("a", 1.0, 1.0), Row("b", 2.0, 1.0), Row("c", None, 1.0), Row("d", 1.0, None)]) == 1
    assert capsys.readouterr().out == "failed: b; c\n"
    assert _judged([Row("a", 1.0, 1.0), Row("d", 1.0, None)]) == 0


def test_telemetry_is_held_to_two_percent_whatever_is_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    name = f"a hit, with telemetry / {UNSEEN}"
    assert _judged([Row(name, 1.019, 1.0)]) == 0
    assert _judged([Row(name, 1.021, 1.0)]) == 1
    assert capsys.readouterr().out.endswith(f"failed: {name}\n")


def test_without_a_record_nothing_is_in_order() -> None:
    assert _judged([Row("a", 1.0, None)]) == 1


@pytest.mark.parametrize("url", ["unix:///nowhere/at/all", "http://localhost"])
def test_a_server_that_cannot_be_reached_is_told_in_one_line(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["guard.py", "--url", url])
    assert main() == 2
    told = capsys.readouterr().err
    assert told.startswith("benchmarks/guard.py: ")
    assert told.count("\n") == 1


def test_what_is_in_either_is_compared_once() -> None:
    rows = list(compare({"a": 1.0, "b": 2.0}, {"c": 3.0, "b": 4.0}))
    assert rows == [Row("a", 1.0, None), Row("b", 2.0, 4.0), Row("c", None, 3.0)]


def test_a_ratio_may_have_a_tolerance_of_its_own() -> None:
    (strict,) = compare({"a": 1.5}, {"a": 1.0})
    (wide,) = compare({"a": 1.5}, {"a": 1.0}, {"a": 0.6})
    assert (strict.fails, wide.fails) == (True, False)


def test_a_row_tells_both_ratios_and_the_change() -> None:
    assert str(Row("a hit", 1.5, 1.0)).split() == ["a", "hit", "1.500", "1.000", "+50%", "worse"]
    assert str(Row("a hit", None, 1.0)).split() == ["a", "hit", "-", "1.000", "gone"]


def test_most_rounds_may_be_disturbed() -> None:
    assert quickest([9.0] * 18 + [1.0] * 2) == 1.0
    assert quickest([5.0]) == 5.0


def test_each_is_put_over_the_floor_of_the_same_rounds() -> None:
    rounds = [{"floor": 2.0, "a": 3.0, "b": 1.0}, {"floor": 4.0, "a": 9.0, "b": 8.0}]
    assert ratios(rounds, "floor") == {"a / floor": 1.5, "b / floor": 0.5}


def test_what_was_recorded_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "results" / "guard.json"
    assert record.read(path) == {}
    record.write(path, {"a / floor": 1.23456}, "a machine")
    assert record.read(path) == {"a / floor": 1.235}
    assert json.loads(path.read_text(encoding="utf-8"))["machine"] == "a machine"


def test_a_race_goes_on_where_it_was() -> None:
    race = Race({"floor": lambda calls: calls * 1e-9, "a": lambda calls: calls * 2e-9}, "floor", calls=10, rounds=3)
    race.warm_up()
    assert race.times == []
    race.go_on()
    race.go_on()
    assert len(race.times) == 6
    assert str(race) == "floor 1 ns, a 2 ns"


def test_misses_and_scripts_are_timed_at_a_real_server(valkey: Server) -> None:
    with misses(valkey.url) as asks, scripts(valkey.url) as served:
        assert asks.keys() == {PING, "a miss"}
        assert served.keys() == {PLAIN, "take.lua"}
        assert all(call(3) > 0 for call in [*asks.values(), *served.values()])
