"""`batchlimit simulate`, as it is typed."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from batchlimit.cli.simulate.result import Result, binned
from tests.cli.conftest import Run

RULES = """
[[rules]]
name = "login"
quota = "5/minute"
key = "login:{ip}"
match = "POST /login"
[[rules]]
name = "api"
quota = "50/s"
key = "api:{user}"
match = "/api/*"
"""


@pytest.fixture
def rules(tmp_path: Path) -> str:
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    return str(path)


@pytest.fixture
def log(tmp_path: Path) -> str:
    """Twenty logins of one address in twenty seconds, and a line that is none."""
    path = tmp_path / "access.log"
    lines = [f'10.0.0.1 - - [22/Nov/2026:10:00:{n:02} +0000] "POST /login HTTP/1.1" 401 9 "-" "x"' for n in range(20)]
    path.write_text(
        "\n".join([*lines, "rubbish", '10.0.0.1 - ann [22/Nov/2026:10:00:30 +0000] "GET /api/x HTTP/1.1" 200 9'])
    )
    return str(path)


def test_what_would_be_refused_is_told_by_rule_and_key(run: Run, rules: str, log: str) -> None:
    told = json.loads(run("simulate", rules, log, "-o", "json").stdout)
    assert (told["requests"], told["unreadable_lines"], told["from"]) == (21, 1, "2026-11-22 10:00:00 UTC")
    login, api = told["rules"]
    assert (login["rule"], login["admitted"] + login["refused"], api["admitted"]) == ("login", 20, 1)
    assert 6 <= login["admitted"] <= 7
    assert told["refused"] == login["refused"]
    assert [(each["key"], each["refused"]) for each in told["keys"]] == [("login:10.0.0.1", login["refused"])]
    assert yaml.safe_load(run("simulate", rules, log, "-o", "yaml").stdout)["rules"] == told["rules"]


def test_a_file_with_limits_of_keys_is_replayed_by_its_rules(run: Run, rules: str, log: str) -> None:
    expected = json.loads(run("simulate", rules, log, "-o", "json").stdout)
    Path(rules).write_text(f'revision = 3\nlimits = {{"search:*" = "50/s burst 100"}}\n{RULES}')
    assert json.loads(run("simulate", rules, log, "-o", "json").stdout)["rules"] == expected["rules"]
    Path(rules).write_text('limits = {"search:*" = "50/s burst 100"}')
    assert "no rules of requests: add [[rules]]" in run("simulate", rules, log).stderr


def test_a_table_is_for_people(run: Run, rules: str, log: str) -> None:
    done = run("simulate", rules, log, "--instances", "2", "--by", "client")
    assert (done.exit_code, "login:10.0.0.1" in done.stdout, "lines that are no requests: 1" in done.stderr) == (
        0,
        True,
        True,
    )


def test_logs_that_were_joined_and_not_sorted_are_noticed(run: Run, rules: str, log: str) -> None:
    assert "older" not in run("simulate", rules, log).stderr
    first = Path(log).read_text()
    Path(log).write_text(f"{first}\n{first.replace('10:00:', '09:58:')}")
    done = run("simulate", rules, log, "-o", "json")
    assert (done.exit_code, json.loads(done.stdout)["requests"]) == (0, 42)
    assert "lines that are more than a minute older than one before them: 21; sort the log by time" in done.stderr


def test_a_log_may_be_packed_or_come_by_standard_input(run: Run, rules: str, log: str, tmp_path: Path) -> None:
    whole = json.loads(run("simulate", rules, log, "-o", "json").stdout)
    packed = tmp_path / "access.log.gz"
    packed.write_bytes(gzip.compress(Path(log).read_bytes()))
    for told in (
        run("simulate", rules, str(packed), "-o", "json").stdout,
        run("simulate", rules, "-", "-o", "json", typed_in=Path(log).read_text()).stdout,
    ):
        assert json.loads(told)["rules"] == whole["rules"]


@pytest.mark.parametrize(
    "damage", [lambda packed: packed[:-20], lambda packed: packed[:12] + b"\xff" * 40, lambda packed: b"no" + packed]
)
def test_a_packed_log_that_is_damaged_is_named(run: Run, rules: str, log: str, tmp_path: Path, damage: Any) -> None:
    packed = tmp_path / "access.log.gz"
    packed.write_bytes(damage(gzip.compress(Path(log).read_bytes())))
    done = run("simulate", rules, str(packed))
    assert (done.exit_code, "access.log.gz cannot be unpacked: " in done.stderr) == (2, True)


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_a_plot_is_drawn(run: Run, rules: str, log: str, tmp_path: Path, ending: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"plot.{ending}"
    assert run("simulate", rules, log, "--plot", str(path)).exit_code == 0
    assert path.stat().st_size > 1000


def test_a_long_log_is_drawn_in_bins() -> None:
    result = Result(seconds={1000 + n: (3, 1) for n in range(1000)})
    width, bins = binned(result)
    assert (width, len(bins), bins[0], bins[-1]) == (5, 200, (1000, 3.0, 1.0), (1995, 3.0, 1.0))


@pytest.mark.parametrize(
    ("rules_text", "log_text", "expected"),
    [
        ("[[rules]]\nname = 'x'\n", "", "rule 'x'"),
        (RULES, "", "no line of the log is a request"),
        (RULES, "rubbish\n", "'rubbish'"),
        (None, "", "No such file"),
        (RULES, None, "No such file"),
    ],
)
def test_a_replay_says_what_it_cannot(run: Run, tmp_path: Path, rules_text: Any, log_text: Any, expected: str) -> None:
    for name, text in (("rules.toml", rules_text), ("access.log", log_text)):
        if text is not None:
            (tmp_path / name).write_text(text)
    done = run("simulate", str(tmp_path / "rules.toml"), str(tmp_path / "access.log"))
    assert (done.exit_code, expected in done.stderr, "Traceback" in done.output) == (2, True, False)
