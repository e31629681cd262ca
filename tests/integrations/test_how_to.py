"""The pages of docs/how-to show a part of an application of examples/, which a test runs, or one that runs here."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.integrations.matrix.serve import SERVED
from tests.integrations.test_workers import WAYS

_ROOT = Path(__file__).parents[2]
_PAGES = sorted(each for each in (_ROOT / "docs" / "how-to").glob("*.md") if "```python" in each.read_text("utf-8"))
_EXAMPLES = [path.read_text(encoding="utf-8") for path in (_ROOT / "examples").rglob("*.py")]


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
def test_a_page_shows_a_part_of_an_example_or_an_application_that_runs(
    page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = page.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0].strip()
    if not any(shown in example for example in _EXAMPLES):
        module = ModuleType("shown")
        monkeypatch.setitem(sys.modules, "shown", module)  # some frameworks look their types up there
        exec(compile(shown.replace("redis://localhost:6379/0", "memory://"), page.name, "exec"), vars(module))


@pytest.mark.parametrize("framework", ["fastapi", "starlette"])
def test_the_cheap_way_is_the_first_one_that_a_page_shows(framework: str) -> None:
    text = (_ROOT / "docs" / "how-to" / f"{framework}.md").read_text("utf-8")
    first = text.split("```python\n")[1].split("```")[0]
    assert "limited(" not in first  # what a route asks for takes twice as long as a rule that matches by path


def test_the_page_of_web_applications_shows_what_its_code_prints(capsys: pytest.CaptureFixture[str]) -> None:
    text = (_ROOT / "docs" / "web.md").read_text(encoding="utf-8")
    for shown in text.split("```python\n")[1:]:
        code = shown.split("```")[0].replace("redis://localhost:6379/0", "memory://")
        exec(compile(code, "web.md", "exec"), {"__name__": "shown"})
    *asgi, wsgi = (printed := capsys.readouterr().out.splitlines())[:4]
    assert "\n".join(printed[4:8]) in text
    assert f"\n{printed[8]}\n" in text
    assert [line.split()[0] for line in asgi] == ["200", "200", "429"]
    assert '"search";r=1;t=1800' in asgi[0]
    assert asgi[0].endswith("None")
    assert int(asgi[2].split()[-1]) >= 1
    assert wsgi == "[200, 200, 429]"


def test_the_page_of_web_applications_names_each_server_that_the_tests_start() -> None:
    text = (_ROOT / "docs" / "web.md").read_text(encoding="utf-8")
    rows = text.split("## Which servers were run")[1].split("##")[0].lower()
    for name in (serve.__name__ for serve, _ in SERVED.values()):
        assert f"| {name} " in rows
    for command in (command for command, _ in WAYS.values() if command[0] == "gunicorn"):
        assert f"`{command[command.index('-k') + 1].lower()}`" in rows


def test_each_program_of_the_page_of_task_queues_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (_ROOT / "docs" / "how-to" / "workers.md").read_text(encoding="utf-8")
    programs = [each.split("```")[0] for each in text.split("```python\n")[1:]]
    assert len(programs) == 7
    for number, program in enumerate(programs):
        module = ModuleType(f"shown{number}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        code = program.replace('from_url("redis://localhost:6379/0"', 'from_url("memory://"')
        exec(compile(code, f"workers.md-{number}", "exec"), vars(module))
