"""Suites of users, run as they run theirs."""

import subprocess
import sys
from pathlib import Path


def passed(folder: Path, *arguments: str) -> str:
    """Run pytest in a folder, of which all tests have to pass; return what it said."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    run = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=500)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout
