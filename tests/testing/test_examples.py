"""The suites of the examples run as users run theirs: in random order, on no server; with --deep on four workers."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.depth import depth

_ROOT = Path(__file__).parents[2]
_WORKERS = depth(0, 4)
_OPTIONS = ["-n", str(_WORKERS), "-p", "no:cacheprovider", "--import-mode=importlib"]


@pytest.mark.parametrize("seed", range(depth(1, 10)))
def test_the_suites_of_the_examples_pass_in_any_order(seed: int) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-o", "addopts=", *_OPTIONS, f"--randomly-seed={seed}", "examples/tests"],
        check=False,
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_example_has_a_suite() -> None:
    examples = {path.stem for path in (_ROOT / "examples").glob("*.py")}
    assert {path.stem for path in (_ROOT / "examples" / "tests").glob("test_*.py")} == {f"test_{e}" for e in examples}
