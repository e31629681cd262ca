"""`batchlimit get --watch`: a screen at a terminal, a line for each look in a pipe."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from batchlimit import Quota
from batchlimit.admin import BucketState
from batchlimit.bucket.messages import Ask
from batchlimit.cli.bucket import BucketLook, Rates
from batchlimit.stores import RedisStore
from tests.cli.conftest import Run
from tests.cli.terminal import Terminal

ROOT = Path(__file__).parents[2]
SLOW = Quota(0.001, 100)
TEN = Ask("one", 1, 10, 10, 10, round_trip=2.0, refused=3, shadow_refused=4)


def look(at: float, used: int, began: float) -> BucketLook:
    return BucketLook("ann", at, BucketState(SLOW, (90.0,), 0, (), 0, 0, at - began, used, 0), None)


def test_rates_are_those_of_one_bucket_though_each_look_tells_its_begin_a_little_later() -> None:
    rates = Rates()

    def taken(seen: BucketLook) -> tuple[float, float, float, tuple[float, ...]]:
        row = rates.take(seen)
        return row.used, row.refused, row.shadow, row.trend

    told = [taken(look(at, used, began)) for at, used, began in [(10.0, 50, 0.0), (11.0, 70, 0.006), (12.0, 90, 0.013)]]
    assert told == [(5.0, 0.0, 0.0, ()), (20.0, 0.0, 0.0, (20.0,)), (20.0, 0.0, 0.0, (20.0, 20.0))]
    assert taken(look(20.0, 30, 14.0)) == (5.0, 0.0, 0.0, ()), "a bucket that began anew"
    assert taken(BucketLook("ann", 21.0, None, None)) == (0.0, 0.0, 0.0, ())


@contextmanager
def watching(environment: dict[str, str], *words: str) -> Iterator["subprocess.Popen[str]"]:
    """The command with a pipe; closed before its end, as `head` does."""
    line = [sys.executable, "-m", "batchlimit", "get", "ann", "--watch", "--interval", "0.1", *words]
    with subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        yield process
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ("", 0), "whoever read has read enough"


def test_a_pipe_gets_a_line_of_json_for_each_look(environment: dict[str, str], valkey_store: RedisStore) -> None:
    with watching(environment, "-o", "json") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["has_bucket"] is False
        valkey_store.take("ann", SLOW, TEN)
        while "level" not in (told := json.loads(process.stdout.readline())):
            pass
        assert (told["level"], told["used"], told["refused"], told["shadow_refused"]) == (0.9, 10, 3, 4)


def test_a_level_is_the_same_share_in_get_and_top(run: Run, valkey_store: RedisStore) -> None:
    valkey_store.take("ann", SLOW, TEN)
    got, (seen,) = json.loads(run("get", "ann", "-o", "json").stdout), _top(run)
    assert (seen["level"], got["level"]) == (0.9, 0.9)


def _top(run: Run) -> list[dict[str, object]]:
    keys: list[dict[str, object]] = json.loads(run("top", "-o", "json", "--interval", "0.1").stdout)["keys"]
    return keys


def test_a_pipe_gets_columns_or_documents(environment: dict[str, str], valkey_store: RedisStore) -> None:
    valkey_store.take("ann", SLOW, TEN)
    with watching(environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline().split()[:2] == ["AT", "LEVEL"]
        assert process.stdout.readline().split()[1:3] == ["0.900", "10"]
    with watching(environment, "-o", "yaml") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(6)]
        assert (lines[0], yaml.safe_load("".join(lines[2:4]))) == ("---\n", {"key": "ann", "override": None})


def test_a_terminal_shows_a_screen_until_q(environment: dict[str, str], valkey_store: RedisStore) -> None:
    with Terminal(environment, "get", "ann", "--watch", "--interval", "0.1") as terminal:
        terminal.await_text("no bucket: it is full")
        valkey_store.take("ann", SLOW, TEN)
        terminal.await_text("90.0 of 100", "10 by 1 instances", "one")
        terminal.press("q")
        assert terminal.status() == 0
