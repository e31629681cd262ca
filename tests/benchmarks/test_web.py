"""What `benchmarks.web` sets beside each other does the same work."""

import re
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest

from benchmarks import web, web_asgi, web_django, web_wsgi
from benchmarks.web_rules import FLOOR, FLOOR_OF_FOUR, FLOOR_OF_ONE

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
