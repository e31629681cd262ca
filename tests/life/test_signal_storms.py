"""Signals that raise, thousands of them: no key is dead, nobody waits for ever, no slot is lost."""

import subprocess
import sys

import pytest

from tests.depth import only_deep
from tests.life import task_storm
from tests.life.signal_storm import ALL_KINDS


def play(kind: str, raised: int) -> None:
    program = [sys.executable, "-m", "tests.life.signal_storm", kind, f"{raised}"]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["rate", "several", "spends", "concurrency", "keyed"])
def test_after_a_thousand_signals_amid_its_calls_a_limiter_serves(kind: str) -> None:
    """Callers waited for ever for the answer to an ask whose caller was gone, and slots had no holder."""
    play(kind, 1000)


@only_deep
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_after_many_thousand_signals_amid_its_calls_a_limiter_is_as_before(kind: str) -> None:
    play(kind, 20_000 if kind in task_storm.KINDS else 100_000)
