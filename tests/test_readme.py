"""The examples of the README and of docs/ run, on a real server; and what they link to is there."""

import re
from pathlib import Path

import pytest

from tests.servers import Server

_ROOT = Path(__file__).parents[1]
_PAGES = [_ROOT / "README.md", _ROOT / "CONTRIBUTING.md", *sorted((_ROOT / "docs").rglob("*.md"))]
_README = _PAGES[0].read_text(encoding="utf-8")
_EXAMPLES = [
    pytest.param(example, id=f"{page.name}-{number}")
    for page in _PAGES
    if page.parent.name != "how-to"  # applications, which tests/integrations runs
    for number, example in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
]
_LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("example", _EXAMPLES)
def test_an_example_of_the_documentation_runs(example: str, valkey: Server, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(example.replace("redis://localhost:6379/0", valkey.url), "example", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(_ROOT)))
def test_what_a_page_links_to_is_there(page: Path) -> None:
    targets = [target for target in _LINK.findall(page.read_text(encoding="utf-8")) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_first_screen_shows_an_example() -> None:
    assert "```python" in "".join(_README.splitlines(keepends=True)[:20])


def test_the_readme_is_read_in_five_minutes() -> None:
    assert len(_README.splitlines()) <= 160
