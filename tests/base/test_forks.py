"""What a forked child does: all of it, once, whatever some of it raises."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from batchlimit.base import forks
from batchlimit.base.forks import Forkables


class Thing:
    """Notes that it began anew, and may fail at that, as a store of the user's own."""

    def __init__(self, begun: list[str], name: str) -> None:
        self._begun, self._name = begun, name

    def after_fork(self) -> None:
        self._begun.append(self._name)
        if self._name == "broken":
            raise OSError("no connection yet")


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What began anew in a process that Python told nothing of."""
    told: list[str] = []
    beginnings: list[Callable[[], object]] = []
    monkeypatch.setattr(forks, "beginnings", beginnings)
    monkeypatch.setattr(forks, "process", -1)
    return told


def test_what_fails_stops_nothing_else_and_is_not_begun_again(begun: list[str]) -> None:
    """It failed each call of each limiter from then on."""
    things = [Thing(begun, name) for name in ("one", "broken", "another")]
    for kind in (Forkables[Thing](), Forkables[Thing]()):
        for each in things:
            kind.add(each)
    with pytest.raises(OSError, match="no connection yet"):
        forks.begin_anew()
    assert sorted(begun) == sorted(2 * ["one", "broken", "another"])
    forks.begin_anew()
    assert len(begun) == 6


def test_what_a_signal_handler_interrupts_is_begun_again(begun: list[str]) -> None:
    def interrupted() -> None:
        begun.append("anew")
        if len(begun) == 1:
            raise KeyboardInterrupt

    forks.beginnings.append(interrupted)
    with pytest.raises(KeyboardInterrupt):
        forks.begin_anew()
    forks.begin_anew()
    assert begun == ["anew", "anew"]


ORDER = """
import os, sys
asked = []
os.register_at_fork = lambda **_: asked.append(sys._getframe(1).f_globals["__name__"])
import batchlimit.base.forks, logging
print(asked[asked.index("batchlimit.base.forks"):])
"""


def test_a_child_has_the_locks_of_logging_anew_before_something_begins_that_logs() -> None:
    """A thread of watchers that began first waited for ever, in a quarter of all forks on a busy machine."""
    told = subprocess.run([sys.executable, "-c", ORDER], capture_output=True, text=True, check=True)
    assert "logging" not in told.stdout
