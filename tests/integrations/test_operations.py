"""A concurrency limit before each framework: who gets in, what its law hears, and by which names."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from fastapi import FastAPI

from batchlimit import AsyncConcurrencyLimiter
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, Keyed
from batchlimit.integrations import asgi
from batchlimit.integrations.carried import route_of
from batchlimit.laws import Knee
from batchlimit.rules import Rule
from tests.integrations.asgi import Hello, call, http
from tests.integrations.everywhere import FACES, KEY, ON_ASGI, ROUTING, THREADS, bounded
from tests.integrations.made import Said, View
from tests.integrations.test_asgi_concurrency import counts
from tests.recording import Recording

MS = 1_000_000


class Passing:
    """ns that pass as views say."""

    def __init__(self) -> None:
        self.now = 1_000_000 * MS

    def __call__(self) -> int:
        return self.now

    def fast(self) -> str:
        self.now += 2 * MS
        return "fast"

    def slow(self) -> str:
        self.now += 50 * MS
        return "slow"


NOBODY = Rule("nobody", "1/hour", key="nobody", match="/nobody")


def by_path(scope: Any) -> str:
    return f"GET /{scope['path'].split('/')[1]}/{{n}}"


@pytest.mark.parametrize("face", ROUTING)
def test_a_fast_route_and_a_slow_one_have_a_baseline_each(face: str) -> None:
    passing, parameter = Passing(), "<n>" if face in ("quart", "flask", "django", "django-asgi") else "{n}"
    within: Any = "included" if face == "fastapi" else ""  # whose template has no prefix of itself
    views = [
        View("/fast/{n}", lambda request, n: Said(passing.fast())),
        View("/slow/{n}", lambda request, n: Said(passing.slow()), within=within),
    ]
    slow = f"/{within}/slow".replace("//", "/")
    terms: Any = {"operation": by_path} if face == "asgi" else {}
    with bounded(face, Knee(), [NOBODY], *views, clock=passing, **terms) as (served, limiter):
        for n in range(60):
            assert [served.get(f"{path}/{n}").status for path in ("/fast", slow)] == [200, 200]
        assert served.get("/nowhere").status == 404
        found = limiter.statistics().baselines
    named = [f"GET {path}/{parameter}" for path in ("/fast", slow)]
    assert {*found} - {"", by_path({"path": "/nowhere"})} == {*named}
    assert [found[each] for each in named] == [pytest.approx(0.002), pytest.approx(0.05)]


ENDS = {200: "succeeded", 404: "succeeded", 401: "succeeded", 429: "dropped", 503: "dropped", 500: "ignored"}
ENDS |= {0: "ignored"}


@pytest.mark.parametrize("face", ROUTING)
def test_the_status_of_a_response_or_an_exception_feeds_the_law(face: str) -> None:
    """Of aiohttp a view raises 401."""
    answering = View("/{status:int}", lambda request, status: Said(status=int(status) or 1 // 0))
    with bounded(face, Recording(1), [NOBODY], answering) as (served, limiter):
        for status, counted in ENDS.items():
            before = getattr(limiter.statistics(), counted)
            with suppress(ZeroDivisionError):  # what the framework does with it is its own affair
                assert served.get(f"/{status}").status == status or 500
            assert getattr(limiter.statistics(), counted) == before + 1
        assert limiter.statistics().in_flight == 0


REFUSING = [Rule("hello", "1/hour", key="hello", match="/hello"), Rule("search", "1/hour", key=KEY, match=None)]
BEHIND = [(face, path, False) for face in FACES for path in ("/hello", "/search")[: 1 + (face in ROUTING)]]
IN_ONE = [(face, "/hello", True) for face in (*ON_ASGI, "wsgi")]


@pytest.mark.parametrize(("face", "path", "is_one"), BEHIND + IN_ONE)
def test_a_request_needs_a_permit_and_tokens_and_what_rules_refuse_tells_the_law_nothing(
    face: str, path: str, is_one: bool
) -> None:
    with bounded(face, Recording(1), REFUSING, is_one=is_one) as (served, limiter):
        permit = limiter.acquire()
        if face not in THREADS:
            served.run(_entered(permit))
        assert served.get(path).status == 503  # and nothing is charged
        permit.success()
        assert served.statuses(path, 2) == [200, 429]
        assert counts(limiter) == (0, 2, 0, 1)


@pytest.mark.parametrize("face", FACES)
def test_what_bypasses_needs_no_permit(face: str) -> None:
    def bypass(native: Any) -> bool:
        path = getattr(native, "path", None) or native.get("path") or native["PATH_INFO"]
        return bool(path == "/hello")

    with bounded(face, Recording(1), REFUSING, bypass=bypass) as (served, limiter):
        permit = limiter.acquire()
        if face not in THREADS:
            served.run(_entered(permit))
        assert (served.get("/hello").status, served.get("/other").status) == (200, 503)
        permit.success()


async def _entered(permit: Any) -> None:
    await permit


def test_a_name_is_of_every_key_and_one_that_cannot_be_had_is_none() -> None:
    async def of(operation: Any) -> list[str]:
        laws: list[Recording] = []

        def law() -> Recording:
            laws.append(Recording(5))
            return laws[-1]

        async with AsyncKeyedConcurrencyLimiter({"*": Keyed(law)}) as limiter:
            limited = asgi.ConcurrencyLimitMiddleware(
                Hello(), limiter, key=lambda scope: ["a", "b"], operation=operation
            )
            await call(limited, http())
        return [sample.operation for each in laws for sample in each.samples]

    def fails(scope: Any) -> str:
        raise KeyError("route")

    assert asyncio.run(of(lambda scope: "hello")) == ["hello", "hello"]
    assert asyncio.run(of(fails)) == ["", ""]
    assert asyncio.run(of(lambda scope: 1)) == ["", ""]


def test_names_are_bounded_whatever_clients_send() -> None:
    assert route_of({"method": "FOO123", "path_template": "/a"}) == ""
    assert route_of({"REQUEST_METHOD": "GET"}) == ""
    assert route_of({"method": "GET", "path_template": "/a"}) == "GET /a"
    assert route_of({"method": "GET", "endpoint": Hello.__call__}) == "GET tests.integrations.asgi.Hello.__call__"
    assert route_of({"method": "GET", "endpoint": Hello()}) == "GET tests.integrations.asgi.Hello"


def test_routes_of_mounted_applications_are_told_apart() -> None:
    """Two versions of one interface have the same templates."""
    app, law = FastAPI(), Recording(20)
    for path, view in (("/v1", lambda n: "old"), ("/v2/{who}", lambda n: "new")):
        version = FastAPI()
        version.get("/search/{n}")(_named(view, path[1:3]))
        app.mount(path, version)
    paths = "/v1/search/1", "/v1/search/2", "/v2/ann/search/1", "/v2/bob/search/1", "/v1/nothing"

    async def main() -> list[int]:
        async with AsyncConcurrencyLimiter(law) as limiter:
            limited = asgi.ConcurrencyLimitMiddleware(app, limiter)
            return [(await call(limited, http(path))).status for path in paths]

    assert asyncio.run(main()) == [200, 200, 200, 200, 404]
    first, again, other, another, nothing = (sample.operation for sample in law.samples)
    assert first == again != other == another
    assert nothing == ""
    assert all(name.startswith("GET ") for name in (first, other))


def _named(view: Any, name: str) -> Any:
    view.__qualname__ = name
    return view
