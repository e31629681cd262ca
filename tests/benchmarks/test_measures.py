"""The measures of single calls: what is measured is what it is called, and what the guard and its page make of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchlimit.integrations import source
from benchmarks import looks, path
from benchmarks.asks import PING, PLAIN, misses, scripts
from benchmarks.calls import OVERRIDDEN, cases
from benchmarks.footprint import footprint
from benchmarks.guard import UNSEEN, _judged, main
from benchmarks.markdown import between_marks
from benchmarks.pipeline import pipelined
from benchmarks.record import Row, compare
from benchmarks.small_limits.cells import Cell, measured
from benchmarks.small_limits.told import AMISS, simulated
from benchmarks.tasks import crowds
from tests.nodes import node
from tests.servers import Server, valkey_binary


@pytest.mark.parametrize(
    ("name", "replies"),
    [
        ("an INCR", [1, 2, 3, 4]),
        ("a minimal token bucket", [1, 1, 1, 1]),
        ("take: granted, 1 instance", [20, 20, 20, 20]),
        ("take: granted, 20 instances", [20, 20, 20, 20]),
        ("take of two bandwidths", [20, 20, 20, 20]),
        ("take: granted, 1 instance, by an override", [20, 20, 20, 20]),
        ("take and give_back in turn", [20, 20, 20, 20]),
        ("take: refused", [1, 0, 0, 0]),
    ],
)
def test_each_case_is_what_its_name_says(valkey: Server, name: str, replies: list[int]) -> None:
    with valkey.client() as client:
        client.flushdb()
        commands = list(cases(client)[name](1, 4))
        found: list[Any] = pipelined(client, commands)
        client.flushdb()
    assert [reply[0] if isinstance(reply, list) else reply for reply in found] == replies


def test_an_override_is_asked_for_as_often_as_limiters_do_it(valkey: Server) -> None:
    with valkey.client() as client:
        client.flushdb()
        found: list[Any] = pipelined(client, list(cases(client)[OVERRIDDEN](1, 20)))
        client.flushdb()
    assert [reply[9] for reply in found].count(7) == 2, "the revision"


def test_a_bucket_takes_some_hundred_bytes(valkey: Server) -> None:
    """How many exactly is for the benchmark: of so few the server's own tables take as much."""
    with valkey.client() as client:
        client.flushdb()
        cases(client)
        bucket, _, instance = footprint(client, 1_000)
        client.flushdb()
    assert 200 < bucket.value < 400
    assert 40 < instance.value < 100


# What looking costs is told of every look, and nothing is left on the server


def test_each_look_is_told_of_and_leaves_nothing() -> None:
    with node(valkey_binary()) as one:
        found = {each.name: each for each in looks.figures(one.url, 3_000, 0.1)}
        assert one.ask("DBSIZE") == 0
    assert found["top: commands of a look"].value > 50
    assert 0 < found["top: buckets of a look"].value < 3_000, "one step, whatever the budget is"
    assert found["set --dry-run of all keys"].note.endswith(" commands")
    assert int(found["get: a look"].note.split()[0]) < 10, "however many buckets there are"


def test_a_server_that_is_in_use_is_left_alone() -> None:
    with node(valkey_binary()) as one:
        one.ask("SET", "somebody", "else")
        with pytest.raises(ValueError, match="not empty"):
            list(looks.figures(one.url, 10, 0.1))
        assert one.ask("DBSIZE") == 1


# What AsyncRateLimiter adds to what a limiter costs within one process


@pytest.mark.usefixtures("far_away")
def test_a_crowd_of_tasks_makes_three_calls_one_at_a_time_and_nobody_is_refused(valkey: Server) -> None:
    calls, at_once, refused = (figure.value for figure in crowds(valkey.url, 1))
    assert (at_once, refused) == (1, 0)
    assert calls in {3, 4}, "on a busy machine a lease may be over before all have spent"


# How many files and functions a call passes, which is how many a newcomer reads who follows it


@pytest.mark.parametrize(
    ("name", "api"), [(path.THREADS, path.threads), (path.TASKS, path.tasks), (path.WEB, path.web)]
)
def test_a_call_passes_few_files_and_functions(
    name: str, api: Callable[[str], dict[str, path.Passed]], valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "DEADLINE", 30.0)  # a first request whose answer is late passes two files more
    figures = list(path.figures({name: api(valkey.url)}))
    assert sum(bool(each.verdict) for each in figures) == (6 if name == path.WEB else 10)
    assert [str(each) for each in figures if each.verdict == "short"] == []


# What small limits admit over several instances, beside one plain bucket; and what their clients are told


@pytest.mark.parametrize(("rate", "burst"), [("1/s", 1), ("10/s", 2), ("100/s", 2)])
@pytest.mark.parametrize(("instances", "demand"), [(1, 2), (8, 0.9), (8, 10)])
def test_a_small_limit_admits_what_a_plain_bucket_admits(rate: str, burst: int, instances: int, demand: float) -> None:
    for arrivals in ("even", "random"):
        assert list(measured(Cell(rate, burst, arrivals, instances, demand)).faults) == []


@pytest.mark.parametrize(("arrivals", "instances"), [("even", 1), ("random", 1), ("even", 4)])
def test_the_way_to_the_store_is_not_lost_at_a_burst_of_1(arrivals: str, instances: int) -> None:
    """1 ms of every 10: it was 11 % of what a plain bucket admits."""
    assert measured(Cell("100/s", 1, arrivals, instances, 10)).part >= 0.985


@pytest.mark.parametrize("quota", [("100/s", 5, 1), ("100/s", 10, 2), ("10/s", 5, 1)])
def test_below_the_rate_a_small_burst_is_spent_and_not_held(quota: tuple[str, int, int]) -> None:
    rate, burst, instances = quota
    assert measured(Cell(rate, burst, "random", instances, 0.9)).part >= 0.98


@pytest.mark.parametrize("quota", ["5/minute", "10/s burst 2"])
@pytest.mark.parametrize("wanders", [False, True])
def test_a_client_that_comes_when_it_was_told_to_is_admitted(quota: str, wanders: bool) -> None:
    waits = simulated(quota, 8, wanders=wanders)
    assert waits.ratio == pytest.approx(1.0, abs=AMISS)
    assert len(waits.told) == len(waits.real)


# The guard's arithmetic: which ratio it takes, and when it says that one has become worse


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


# What a benchmark writes: tables, and only between its marks


def test_what_stands_between_the_marks_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- x -->\nold\n<!-- /x -->\nafter\n", encoding="utf-8")
    between_marks(page, "x", "new\n")
    between_marks(page, "x", "newer\n")
    assert page.read_text(encoding="utf-8") == "before\n<!-- x -->\nnewer\n<!-- /x -->\nafter\n"


@pytest.mark.parametrize("text", ["", "<!-- x -->\n", "<!-- /x -->"])
def test_a_page_without_the_marks_is_left_alone(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="marks"):
        between_marks(page, "x", "new\n")
    assert page.read_text(encoding="utf-8") == text
