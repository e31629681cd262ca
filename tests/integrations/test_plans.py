"""What the database says of a customer's plan holds in every process that runs."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from batchlimit.admin import Admin
from tests.nodes import await_fact
from tests.servers import any_binary, redis_server

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "plans.md"
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
        code = PAGE.read_text("utf-8").split("```python\n")[1].split("```")[0].replace("redis://localhost:6379/0", url)
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", code + SERVE]
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


def test_a_new_plan_holds_in_all_processes_and_so_does_a_quota_of_one_customer(
    workers: list[Worker], url: str, tmp_path: Path
) -> None:
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
