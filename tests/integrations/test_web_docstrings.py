"""The examples in the docstrings of the web front run."""

from importlib import import_module

import pytest

from tests.examples import run_examples

MODULES = [
    "address",
    "arq",
    "aiohttp.limits",
    "asgi.concurrency",
    "asgi.middleware",
    "asgi.route",
    "celery",
    "checks",
    "counters",
    "enforcement.enforcer",
    "enforcement.outcome",
    "enforcement.plan",
    "django.hold",
    "dramatiq",
    "fastapi",
    "flask",
    "front",
    "grpc.answer",
    "grpc.client_rules",
    "grpc.details",
    "grpc.rate_limit",
    "grpc.client_calls",
    "headers",
    "litestar",
    "permits",
    "problem",
    "procrastinate",
    "quart",
    "extension",
    "starlette",
    "rq",
    "taskiq",
    "task_limit",
    "wsgi.concurrency",
    "wsgi.middleware",
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str) -> None:
    assert run_examples(import_module(f"batchlimit.integrations.{name}")).failed == 0
