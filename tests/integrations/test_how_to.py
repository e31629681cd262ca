"""The pages of docs/how-to show a part of an application of examples/, which a test runs, or one that runs here."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from batchlimit import integrations
from batchlimit.admin import Admin
from tests.examples import run_examples
from tests.integrations.targets.servers import PLAIN
from tests.integrations.test_workers import WAYS
from tests.nodes import await_fact
from tests.servers import any_binary, redis_server

_ROOT = Path(__file__).parents[2]
_PAGES = sorted(each for each in (_ROOT / "docs" / "how-to").glob("*.md") if "```python" in each.read_text("utf-8"))
_EXAMPLES = [path.read_text(encoding="utf-8") for path in (_ROOT / "examples").rglob("*.py")]


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
def test_a_page_shows_a_part_of_an_example_or_code_that_runs(page: Path, monkeypatch: Any, tmp_path: Path) -> None:
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
    for name in {name.partition("-")[0] for name in PLAIN} - {"granian", "wsgiref", "gunicorn"}:
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


INTEGRATIONS = Path(integrations.__path__[0])
MODULES = sorted(
    ".".join(path.relative_to(INTEGRATIONS.parents[1]).with_suffix("").parts)
    for path in INTEGRATIONS.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str) -> None:
    assert run_examples(import_module(name)).failed == 0


# What the database says of a customer's plan holds in every process that runs
PLANS_PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "plans.md"
PATIENT = """
from batchlimit.integrations import source
source.DEADLINE = 30.0
"""
SERVE = """
import sys
from fastapi.testclient import TestClient
with TestClient(app) as client:
    for user in sys.stdin:
        reply = client.get("/", headers={"x-user": user.strip()})
        policy = reply.headers.get("ratelimit-policy", "")
        print(reply.status_code, policy[policy.find("q="):policy.find(";w")], flush=True)
"""


class Worker:
    """A process that serves the application of the page."""

    def __init__(self, folder: Path, url: str) -> None:
        code = (
            PLANS_PAGE.read_text("utf-8")
            .split("```python\n")[1]
            .split("```")[0]
            .replace("redis://localhost:6379/0", url)
        )
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", PATIENT + code + SERVE]
        self.process = subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, text=True)

    def ask(self, user: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(user, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def hears(self, user: str, end: str) -> bool:
        return self.ask(user).endswith(end)

    def stop(self) -> None:
        self.process.communicate()


@pytest.fixture
def url() -> Iterator[str]:
    """A server of its own: the keys of the page have no prefix of a test."""
    with redis_server(any_binary()) as url:
        yield url


@pytest.fixture
def workers(url: str, tmp_path: Path) -> Iterator[list[Worker]]:
    with ExitStack() as stack:
        found = []
        for _ in range(2):
            found.append(Worker(tmp_path, url))
            stack.callback(found[-1].stop)
        yield found


def test_a_new_plan_and_a_quota_of_one_customer_hold_in_all_processes(workers: Any, url: str, tmp_path: Path) -> None:
    one, other = workers
    assert [one.ask("ann"), other.ask("ann"), one.ask("ann"), other.ask("ann")] == ["200 q=2"] * 2 + ["429 q=2"] * 2
    with sqlite3.connect(tmp_path / "plans.sqlite") as database:
        database.execute("insert into users values ('ann', 'pro')")
    for worker in workers:
        await_fact(partial(worker.hears, "ann", "200 q=600"), "the plan is in force")
    assert [worker.ask("bob") for worker in workers] == ["200 q=2"] * 2
    with Admin.from_url(url) as admin:
        admin.set("user:free:bob", "75/hour", why="a contract")
    for worker in workers:
        await_fact(partial(worker.hears, "bob", "q=75"), "the override is in force")
