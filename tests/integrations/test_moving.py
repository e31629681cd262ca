"""The page for those who come from another limiter: their code and ours, run on Redis and compared call by call."""

import asyncio
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis
import time_machine
from django.test import Client
from django.test.utils import override_settings
from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient

from tests.depth import only_deep
from tests.integrations import django_site
from tests.nodes import node
from tests.servers import any_binary

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "moving.md").read_text("utf-8")
SECTIONS = {part.split("\n")[0]: part for part in PAGE.split("\n## ")[1:]}
BLOCKS = {
    title: [block.split("```")[0] for block in part.split("```python\n")[1:]]
    for title, part in SECTIONS.items()
    if "```python" in part
}
NOON = 1_800_000_000
"""A time (s since 1970): windows of django-ratelimit begin at times of their own, and one may end during a test."""

ANN, BOB = "ann", "bob"
WEB = {
    "slowapi": [
        *[("/search", ANN)] * 7,
        *[("/hello", ANN)] * 3,
        *[("/report", ANN)] * 4,
        *[("/health", ANN)] * 4,
        *[("/search", BOB), ("/hello", BOB)] * 3,
    ],
    "flask-limiter": [
        *[("/search", ANN)] * 7,
        *[("/hello", ANN)] * 3,
        *[("/report", ANN)] * 4,
        *[("/health", ANN)] * 4,
        *[("/login?right", ANN)] * 5,
        *[("/login", ANN)] * 5,
        ("/login?right", ANN),
        ("/login?right", BOB),
    ],
    "django-ratelimit": [*[("/search", ANN)] * 7, *[("/login", ANN)] * 4, ("/search", BOB), ("/login", BOB)],
    "Throttles of Django REST framework": [*[("/search", ANN)] * 5, *[("/search", BOB)] * 4],
    "fastapi-limiter": [("/search", ANN)] * 5,
}
ASKED = ["limits", "PyrateLimiter", "ratelimit", "aiolimiter", "throttled-py", "INCR and EXPIRE by hand"]
ASKED += ["A semaphore of locks of redis-py"]
DJANGO = ("django-ratelimit", "Throttles of Django REST framework")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server of its own: each block begins with an empty one."""
    with node(any_binary()) as server:
        yield f"redis://127.0.0.1:{server.port}/0"


def run(code: str, url: str) -> ModuleType:
    """Run a block of the page as a module."""
    with redis.Redis.from_url(url) as client:
        client.flushall()
    module = sys.modules["shown_block"] = ModuleType("shown_block")
    exec(compile(code.replace("redis://localhost:6379/0", url), "moving.md", "exec"), vars(module))
    return module


def close(module: ModuleType) -> None:
    limiter = getattr(module, "limiter", None)
    if not inspect.iscoroutinefunction(ending := getattr(limiter, "close", None)) and callable(ending):
        for permit in getattr(module, "held", ()):
            permit.__exit__(None, None, None)
        ending()


def told(status: int, text: str) -> str:
    return "refused" if status in (403, 429) else text


@contextmanager
def client_of(module: ModuleType, url: str) -> Iterator[Any]:
    """A function of path and user that returns what a client gets."""
    if hasattr(module, "urlpatterns"):
        caches = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": url}}
        settings = {name: getattr(module, name) for name in ("MIDDLEWARE", "BATCHLIMIT") if hasattr(module, name)}
        with override_settings(ROOT_URLCONF="shown_block", CACHES=caches, **settings):
            client: Any = Client()
            yield lambda path, user: _of_django(client.get(path, headers={"x-user": user}))
    elif isinstance(module.app, FastAPI):
        with TestClient(module.app, client=("192.0.2.1", 50000)) as client:
            yield lambda path, user: _of_fastapi(client.get(path, headers={"x-user": user}))
    else:
        client = module.app.test_client()
        yield lambda path, user: _of_flask(client.get(path, headers={"x-user": user}))


def _of_django(reply: Any) -> str:
    return told(reply.status_code, reply.content.decode())


def _of_fastapi(reply: Any) -> str:
    return told(reply.status_code, reply.text)


def _of_flask(reply: Any) -> str:
    return told(reply.status_code, reply.get_data(as_text=True))


def test_each_section_with_code_is_run() -> None:
    assert BLOCKS.keys() == {*WEB, *ASKED}
    assert all(len(blocks) == 2 for blocks in BLOCKS.values())


@pytest.mark.parametrize("title", WEB)
def test_an_application_that_moves_admits_and_refuses_the_same_requests(title: str, url: str) -> None:
    found = []
    for code, is_theirs in zip(BLOCKS[title], (True, False), strict=True):
        stopped = time_machine.travel(NOON, tick=False) if is_theirs and title in DJANGO else nullcontext()
        with stopped, client_of(run(code, url), url) as get:
            found.append([get(path, user) for path, user in WEB[title]])
    theirs, ours = found
    assert ours == theirs
    assert "refused" in ours


@pytest.fixture
def of_ratelimit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package ratelimit, for this test alone: asgi-ratelimit has a module of this name too."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tmp_path), "ratelimit"]
    subprocess.run(command, check=True)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ratelimit", raising=False)


@only_deep
@pytest.mark.usefixtures("of_ratelimit")
def test_a_program_that_moves_from_ratelimit_is_answered_the_same(url: str) -> None:
    test_a_program_that_moves_is_answered_the_same("ratelimit", url)
    sys.modules.pop("ratelimit", None)


@pytest.mark.parametrize("title", [title for title in ASKED if title != "ratelimit"])
def test_a_program_that_moves_is_answered_the_same(title: str, url: str) -> None:
    found = []
    for code in BLOCKS[title]:
        module = run(code, url)
        with asyncio.Runner() as runner:
            answers = [module.ask(ANN) for _ in range(5)]
            found.append([runner.run(each) if inspect.iscoroutine(each) else each for each in answers])
        close(module)
    assert found == [[True] * 3 + [False] * 2] * 2


def test_the_default_limits_of_slowapi_do_not_hold_for_included_routers_and_paths_that_nobody_serves(url: str) -> None:
    found = []
    for code in BLOCKS["slowapi"]:
        module, router = run(code, url), APIRouter()
        router.get("/included")(lambda: "found")
        module.app.include_router(router)
        with client_of(module, url) as get:
            found.append([[get(path, user) for _ in range(3)] for path, user in (("/included", ANN), ("/no", BOB))])
    assert [[row.count("refused") for row in each] for each in found] == [[0, 0], [1, 1]]


def test_fastapi_limiter_and_pyrate_limiter_have_one_bucket_for_all(url: str) -> None:
    theirs = run(BLOCKS["PyrateLimiter"][0], url)
    assert [theirs.ask(user) for user in ("a", "b", "c", "d")] == [True, True, True, False]
    refused = []
    for code in BLOCKS["fastapi-limiter"]:
        app = run(code, url).app
        with TestClient(app) as here:  # two clients of one application
            refused.append(0)
            for host in ("192.0.2.1", "192.0.2.2"):
                client = TestClient(app, client=(host, 5))
                refused[-1] += [client.get("/search").status_code for _ in range(3)].count(429)
            here.close()
    assert refused == [3, 0]


def test_the_table_names_tests_that_there_are() -> None:
    rows = SECTIONS["What they have, and what is here"].split("|---|---|---|---|\n")[1].strip().split("\n")
    named = [re.findall(r"`([^`]*)`", row.split("|")[-2]) for row in rows]
    assert len(named) >= 15
    for (name,) in named:
        path, _, test = name.partition("::")
        assert f"def {test}(" in (ROOT / "tests" / path).read_text("utf-8"), name


assert django_site  # which sets Django up
