"""The guard's arithmetic: which ratio it takes, and when it says that one has become worse."""

import pytest

from benchmarks.asks import PING, PLAIN, misses, scripts
from benchmarks.guard import UNSEEN, _judged, main
from benchmarks.record import Row, compare
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


def test_a_ratio_may_have_a_tolerance_of_its_own() -> None:
    (strict,) = compare({"a": 1.5}, {"a": 1.0})
    (wide,) = compare({"a": 1.5}, {"a": 1.0}, {"a": 0.6})
    assert (strict.fails, wide.fails) == (True, False)


def test_misses_and_scripts_are_timed_at_a_real_server(valkey: Server) -> None:
    with misses(valkey.url) as asks, scripts(valkey.url) as served:
        assert asks.keys() == {PING, "a miss"}
        assert served.keys() == {PLAIN, "take.lua"}
        assert all(call(3) > 0 for call in [*asks.values(), *served.values()])
