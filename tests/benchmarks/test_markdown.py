"""What a benchmark writes: tables, and only between its marks."""

from pathlib import Path

import pytest

from benchmarks.markdown import between_marks


def test_what_stands_between_the_marks_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- x -->\nold\n<!-- /x -->\nafter\n", encoding="utf-8")
    between_marks(page, "x", "new\n")
    between_marks(page, "x", "newer\n")
    assert page.read_text(encoding="utf-8") == "before\n<!-- x -->\nnewer\n<!-- /x -->\nafter\n"


@pytest.mark.parametrize("text", ["", "<!-- x -->\n", "<!-- /x -->"])
def test_a_page_without_the_marks_is_left_alone(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="marks"):
        between_marks(page, "x", "new\n")
    assert page.read_text(encoding="utf-8") == text
