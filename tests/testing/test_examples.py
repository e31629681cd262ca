"""The suites of the examples run as users run theirs: in random order, on no server; with --deep on four workers."""

from pathlib import Path

import pytest

from tests.depth import depth
from tests.testing.suites import passed

_ROOT = Path(__file__).parents[2]
TESTS = "examples/tests"


@pytest.mark.parametrize("seed", range(depth(1, 10)))
def test_the_suites_of_the_examples_pass_in_any_order(seed: int) -> None:
    passed(_ROOT, "-o", "addopts=", "-n", f"{depth(0, 4)}", "--import-mode=importlib", f"--randomly-seed={seed}", TESTS)


def test_every_example_has_a_suite() -> None:
    examples = {path.stem for path in (_ROOT / "examples").glob("*.py")}
    assert {path.stem for path in (_ROOT / "examples" / "tests").glob("test_*.py")} == {f"test_{e}" for e in examples}
