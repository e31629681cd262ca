"""`batchlimit top` and `get` with `--metrics`: concurrency limiters, from the metrics pages of real processes."""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from prometheus_client import CollectorRegistry, start_http_server
from typer.testing import CliRunner, Result

from batchlimit import ConcurrencyLimited, ConcurrencyLimiter
from batchlimit.cli.app import app
from batchlimit.cli.top.command import LimiterLook, look, rows
from batchlimit.concurrency import KeyedConcurrencyLimiter
from batchlimit.laws import Knee, Settable
from batchlimit.telemetry.prometheus import export
from tests.cli.terminal import Terminal


class Process:
    """One process of an application: its limiters, and its metrics page."""

    def __init__(self, until: ExitStack) -> None:
        self.law = Settable(5)
        self.limiter = until.enter_context(ConcurrencyLimiter(self.law))
        self.keyed = until.enter_context(KeyedConcurrencyLimiter({"user:*": 2}))
        self.ticks = iter(range(0, 10**14, 10**8))
        self.default = until.enter_context(ConcurrencyLimiter(Knee(), clock=lambda: next(self.ticks)))
        registry = CollectorRegistry()
        self.exporters = [
            export(each, name=name, registry=registry)
            for name, each in (("db", self.limiter), ("users", self.keyed), ("web", self.default))
        ]
        server, thread = start_http_server(0, "127.0.0.1", registry)
        until.callback(thread.join)
        until.callback(server.server_close)
        until.callback(server.shutdown)
        self.url = f"http://127.0.0.1:{server.server_port}/metrics"


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    """Two of them."""
    with ExitStack() as until:
        yield [Process(until), Process(until)]


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), env={"BATCHLIMIT_URL": "", "NO_COLOR": "1"})


def told(processes: list[Process], *words: str) -> list[dict[str, object]]:
    pages = [word for each in processes for word in ("--metrics", each.url)]
    done = run("top", *pages, "--interval", "0.1", "-o", "json", *words)
    assert done.exit_code == 0, done.output
    found: list[dict[str, object]] = json.loads(done.stdout)["limiters"]
    return found


def test_top_adds_up_all_processes(processes: list[Process]) -> None:
    processes[1].law.set_limit(3)
    with processes[0].limiter.acquire(), processes[1].limiter.acquire(), processes[0].keyed.acquire("user:ann"):
        found = told(processes)
    assert [(row["limiter"], row["policy"], row["limit"], row["in_flight"]) for row in found] == [
        ("db", "", 8, 2),
        ("users", "user:*", None, 1),
        ("web", "", 40, 0),
    ]
    assert found[0]["lowered_by"] == {"operator": 1}


def test_top_tells_baselines_of_which_the_longest_counts(processes: list[Process]) -> None:
    for _ in range(100):
        processes[0].default.acquire(operation="read").success()
    web = told(processes)[2]
    assert (web["ratio"], web["baselines"]) == (1.0, {"read": 0.1})


def test_rates_are_those_between_two_looks() -> None:
    ended, refused = ("requests_total", "", "succeeded"), ("requests_total", "limit", "refused")
    before = LimiterLook(10.0, {("db", ""): {ended: 100.0, refused: 50.0}})
    now = LimiterLook(12.0, {("db", ""): {ended: 140.0, refused: 5.0}})
    (row,) = rows(before, now)
    assert (row["ended_per_second"], row["refused_per_second"]) == (20.0, 0.0), "the one that refused began anew"


def test_a_refusal_is_counted(processes: list[Process]) -> None:
    processes[0].law.set_limit(1)
    with processes[0].limiter.acquire(), pytest.raises(ConcurrencyLimited):
        processes[0].limiter.acquire()
    found = rows(LimiterLook(0.0, {}), look([processes[0].url])._replace(at=1.0))
    assert [row["refused_per_second"] for row in found] == [1.0, 0.0, 0.0]


def test_get_shows_one_limiter_by_its_name(processes: list[Process]) -> None:
    processes[0].law.set_limit(9)
    done = run("get", "db", "-m", processes[0].url, "--interval", "0.1")
    assert done.exit_code == 0
    assert [line.split() for line in done.stdout.splitlines()][2:4] == [["limit", "9"], ["in_flight", "0"]]
    assert "operator 1" in done.stdout


def test_get_of_a_name_that_nobody_has_says_which_there_are(processes: list[Process]) -> None:
    done = run("get", "cache", "-m", processes[0].url, "--interval", "0.1")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "there are: 'db', 'users', 'web'" in done.stderr


@pytest.mark.parametrize(
    ("page", "status", "said"),
    [("http://127.0.0.1:9/metrics", 3, "does not answer"), ("file:///etc/passwd", 2, "is an http or https URL")],
)
def test_a_page_that_is_none_ends_the_command(page: str, status: int, said: str) -> None:
    done = run("top", "--metrics", page)
    assert (done.exit_code, done.stdout) == (status, "")
    assert said in done.stderr


def test_without_a_store_or_a_page_the_command_asks_for_one() -> None:
    done = run("get", "ann")
    assert done.exit_code == 2
    assert "--url" in done.stderr


def test_a_terminal_gets_a_screen_until_q(processes: list[Process]) -> None:
    with Terminal(dict(os.environ), "top", "-m", processes[0].url, "--interval", "0.1") as terminal:
        terminal.await_text("LOWERED BY", "user:*")
        processes[0].law.set_limit(4)
        terminal.await_text("operator 1")
        terminal.press("q")
        assert terminal.status() == 0
