"""The command that times the suite of an example tells its own time, and whether a test failed."""

from pathlib import Path

import pytest

from benchmarks import suite
from tests.depth import only_deep


@only_deep
@pytest.mark.parametrize(("body", "passes"), [("pass", True), ("raise AssertionError", False)])
def test_a_suite_is_timed_and_a_failure_is_told(tmp_path: Path, body: str, passes: bool) -> None:
    file = tmp_path / "test_one.py"
    file.write_text(f"def test_one():\n    {body}\n", encoding="utf-8")
    own, whole, is_passed = suite.run([str(file)], workers=1, seed=1)
    assert is_passed is passes
    assert own.value < whole.value
    assert own.note == ("1 passed, 1 workers" if passes else "")
