"""The pages of docs/how-to show applications of examples/, which tests of their own run."""

from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PAGES = sorted((_ROOT / "docs" / "how-to").glob("*.md"))
_EXAMPLES = [path.read_text(encoding="utf-8") for path in (_ROOT / "examples").glob("*.py")]


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
def test_a_page_shows_a_part_of_an_example(page: Path) -> None:
    shown = page.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0].strip()
    assert any(shown in example for example in _EXAMPLES)
