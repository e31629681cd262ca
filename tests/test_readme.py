"""The README's examples run, on a real server."""

import re
from pathlib import Path

import pytest

_README = Path(__file__).parents[1] / "README.md"
_EXAMPLES = re.findall(r"```python\n(.*?)```", _README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("example", _EXAMPLES)
def test_an_example_of_the_readme_runs(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(example, str(_README), "exec"), {})
    assert capsys.readouterr().out


def test_the_first_screen_shows_an_example() -> None:
    assert "```python" in "".join(_README.read_text(encoding="utf-8").splitlines(keepends=True)[:20])
