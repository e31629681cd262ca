"""Every example of the page about testing runs, as a test file of a user."""

import re
from pathlib import Path

from tests.testing.suites import passed

_PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "testing.md"
_BLOCKS = re.findall(r"```python\n(.*?)```", _PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_examples_of_the_page_pass(tmp_path: Path) -> None:
    blocks = _BLOCKS[1:]  # the first is part of a suite of an example
    for number, block in enumerate(blocks):
        (tmp_path / f"test_{number}.py").write_text(block, encoding="utf-8")
    said = passed(tmp_path, "-q", "-W", "error", str(tmp_path))
    assert int(re.findall(r"(\d+) passed", said)[0]) >= len(blocks)


def test_the_page_names_every_public_name() -> None:
    from batchlimit import testing

    text = _PAGE.read_text(encoding="utf-8")
    told = {"AsyncFakeLimiter", "FakeLimiter", "Script", "fresh_prefix"}  # those that others make or stand for
    assert [name for name in testing.__all__ if name not in text and name not in told] == []
