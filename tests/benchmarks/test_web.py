"""What `benchmarks.web` sets beside each other does the same work."""

import re
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest

from benchmarks import web, web_asgi, web_django, web_wsgi
from benchmarks.grpc_server import Run
from benchmarks.permit_keys import crowded, figures, passing
from benchmarks.poisson import Called, End
from benchmarks.web_rules import FLOOR, FLOOR_OF_FOUR, FLOOR_OF_ONE
from tests.depth import only_deep

MEMORY = "memory://"
OURS = [(FLOOR_OF_ONE, web.ONE), (FLOOR_OF_FOUR, web.FOUR)]


def own(stacks: dict[str, Any]) -> dict[str, Any]:
    """Leave those out that need a Redis."""
    return {name: each for name, each in stacks.items() if name.startswith((web.ALONE, web.OURS, FLOOR))}


async def fields_of(app: Any) -> dict[str, int]:
    """Return how long each field of a limit is; `r` has as many digits as there are."""
    found: list[Any] = []

    async def send(message: Any) -> None:
        found.append(message)

    await app(web_asgi._scope(), web_asgi._receive, send)
    told = {name.decode().lower(): value.decode() for name, value in found[0]["headers"]}
    assert found[0]["status"] == 200
    return {name: len(re.sub(r"r=\d+", "r=", value)) for name, value in told.items() if name.startswith("ratelimit")}


@pytest.mark.parametrize("stacks", [web_asgi.stacks_on_plain, web_asgi.stacks_on_fastapi])
async def test_the_fixed_fields_are_as_long_as_those_of_the_rules(stacks: Callable[[str], dict[str, Any]]) -> None:
    async with AsyncExitStack() as stack:
        apps = await web_asgi.entered(stack, own(stacks(MEMORY)))
        lengths = {name: await fields_of(app) for name, app in apps.items()}
    assert lengths[web.ALONE] == {}
    for floor, rules in OURS:
        assert lengths[floor] == lengths[rules]
        assert len(lengths[floor]) == 2


def test_each_of_ours_and_each_floor_answers_as_flask_does_alone() -> None:
    with ExitStack() as stack:
        for app in web_wsgi.entered(stack, own(web_wsgi.stacks(MEMORY))).values():
            web_wsgi.serve(app, 3)


def test_each_of_ours_answers_as_django_does_alone() -> None:
    with web_django.opened(MEMORY) as sites:
        for app in own(sites).values():
            web_wsgi.serve(app, 3)


def test_a_middleware_that_limits_nothing_is_none_of_the_others() -> None:
    costs = dict.fromkeys([web.ONE, web.FOUR], web.Cost(10.0, 10.0))
    others = {"another, 1 limit": web.Cost(300.0, 300.0)}
    assert web.judged("ASGI", {**costs, **others, FLOOR_OF_ONE: web.Cost(1.0, 1.0)})


# What the benchmark of a gRPC server makes of its calls


def test_a_refusal_is_no_good_and_takes_no_time() -> None:
    answered = [Called(at=0.0, lag=0.001, took=n / 1000, end=End.ANSWERED) for n in range(1, 101)]
    others = [Called(0.0, 0.0, 0.0, End.REFUSED), Called(0.0, 0.0, 0.2, End.LATE)]
    run = Run(answered + others, seconds=10.0, limit=7)
    assert (run.goodput, run.p99) == (10.0, 0.1)
    assert str(run).startswith("100 answered, 1 refused, 1 late; the limit is 7 at the end")


# The memory of keys of a concurrency limiter: the keys that nobody uses leave it


def test_of_keys_that_had_one_call_each_as_many_are_kept_as_the_limiter_says() -> None:
    assert passing(12_000).kept == 10_000


@only_deep
def test_keys_that_were_under_way_leave_when_they_are_over() -> None:
    seen = crowded(12_000)
    assert seen.kept == 10_000
    assert seen.objects < 0.95


@only_deep
def test_a_figure_says_whether_the_memory_was_bounded() -> None:
    assert {figure.name: figure.verdict for figure in figures(1000)}["keys kept"] == "ok"
