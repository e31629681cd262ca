"""What the page of rules shows is what its examples print."""

import re
from pathlib import Path

import pytest

from batchlimit.rules import Rules

_PAGE = (Path(__file__).parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")
_SHOWN = re.findall(r"```python\n([^`]*)```\n\n```\n([^`]*)```", _PAGE)


@pytest.mark.parametrize(("example", "shown"), _SHOWN, ids=range(len(_SHOWN)))
def test_an_example_prints_what_stands_below_it(example: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(example, "example", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out == shown


def test_the_examples_show_what_they_print() -> None:
    assert len(_SHOWN) == 4


@pytest.mark.parametrize("form", ["toml", "yaml"])
def test_the_files_of_the_page_are_rules(form: str) -> None:
    (text,) = re.findall(rf"```{form}\n([^`]*)```", _PAGE)
    assert len(Rules.loads(text, format=form, functions={"by_size": len})) in (1, 2)  # type: ignore[arg-type]
