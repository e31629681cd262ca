"""`scripts/demo`: what it prints, and what its exit status says."""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

from benchmarks.demo.__main__ import main

SMALL = ("--processes", "2", "--threads", "2", "--seconds", "1", "--quota", "500/s burst 100")


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def here(
    arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[object, str, str]:
    """Run the command in this process, where it ends before it starts others; its status, and what it printed."""
    monkeypatch.setattr(sys, "argv", ["demo", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, *capsys.readouterr()


def test_a_fleet_on_one_server_keeps_the_promise() -> None:
    ended = demo(*SMALL, "--json")
    assert ended.stderr == ""
    assert ended.returncode == 0
    shown = json.loads(ended.stdout)
    assert shown["plan"]["quota"] == "500/s burst 100"
    assert shown["plan"]["api"] == "threads"
    assert shown["report"]["excess"] == 0
    assert shown["report"]["admitted"] == sum(shown["report"]["admitted_by_process"]) > 0
    assert shown["report"]["calls"] > 0


def test_without_a_terminal_it_prints_lines_and_a_verdict_and_tasks_are_called_tasks() -> None:
    ended = demo(*SMALL, "--api", "async", "--pattern", "burst", "--cost", "2")
    assert ended.stderr == ""
    assert ended.returncode == 0
    assert "2 processes x 2 tasks" in ended.stdout
    assert "the promise was kept" in ended.stdout
    assert "\x1b" not in ended.stdout


def test_a_limiter_that_cheats_is_convicted() -> None:
    ended = demo(*SMALL, "--url", "memory://")
    assert ended.returncode == 1
    assert "one bucket per process" in ended.stderr
    assert "BROKEN" in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--quota", "lots"], 2, "quota 'lots': expected an amount"),
        (["--quota", "0/s"], 2, "admits nothing"),
        (["--quota", "5/s", "--cost", "6"], 2, "never fits a burst of 5"),
        (["--url", "nonsense://"], 2, "nonsense://"),
        (["--url", "redis://:secret@127.0.0.1:1/0"], 3, "redis://127.0.0.1:1/0: "),
        (["--url", "unix:///nowhere/at/all?password=secret"], 3, "unix:///nowhere/at/all: "),
    ],
)
def test_wrong_options_print_one_line(
    arguments: list[str], status: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, stdout, stderr = here(arguments, monkeypatch, capsys)
    assert ended == status
    assert stderr.startswith("demo: ")
    assert message in stderr
    assert stderr.count("\n") == 1
    assert "secret" not in stderr + stdout


@pytest.mark.parametrize(
    "arguments", [("--processes", "0"), ("--seconds", "nan"), ("--demand", "inf"), ("--api", "fibers"), ("--unknown",)]
)
def test_options_out_of_range_are_refused(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, _, stderr = here(arguments, monkeypatch, capsys)
    assert ended == 2
    assert "Traceback" not in stderr


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_it_cleanly() -> None:
    command = [sys.executable, "-m", "benchmarks.demo", *SMALL, "--seconds", "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.send_signal(signal.SIGINT)
        assert running.stderr.read() == "demo: interrupted\n"
        assert running.wait() == 130
