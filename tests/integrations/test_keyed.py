"""Faces of a keyed concurrency limiter: the key, or the keys, of each request decide which limit it counts by."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from batchlimit import AsyncConcurrencyLimiter, Partitions
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, Keyed, KeyedConcurrencyLimiter
from batchlimit.integrations.asgi import ConcurrencyLimitMiddleware
from batchlimit.integrations.grpc import AsyncConcurrencyInterceptor
from batchlimit.integrations.wsgi import ConcurrencyLimitMiddleware as WSGIMiddleware
from batchlimit.laws import Fixed
from batchlimit.shared import AsyncSharedConcurrencyLimiter
from batchlimit.stores import MemoryStore
from tests.integrations.asgi import Hello, call, http
from tests.integrations.stage import Recording, SetUp
from tests.integrations.test_asgi_concurrency import Held
from tests.integrations.test_wsgi import App, Reply, request
from tests.sync.stage import until

KeyOf = Callable[[Any], Any]


def path(scope: Any) -> str:
    return f"path:{scope['path']}"


def path_and_all(scope: Any) -> list[str]:
    return [path(scope), "all"]


@pytest.mark.parametrize(("key", "statuses"), [(path, [503, 200, 200]), (path_and_all, [503, 200, 503])])
@pytest.mark.virtual_time
async def test_asgi_requests_count_by_their_keys(key: KeyOf, statuses: list[int]) -> None:
    async with AsyncKeyedConcurrencyLimiter({"path:*": 1, "all": 2}) as limiter:
        held, other = Held(), Held()
        first = asyncio.create_task(call(ConcurrencyLimitMiddleware(held, limiter, key=key), http(path="/a")))
        await held.begun.wait()
        hello = ConcurrencyLimitMiddleware(Hello(), limiter, key=key)
        seen = [(await call(hello, http(path=each))).status for each in ("/a", "/b")]
        second = asyncio.create_task(call(ConcurrencyLimitMiddleware(other, limiter, key=key), http(path="/b")))
        await other.begun.wait()
        assert [*seen, (await call(hello, http(path="/c"))).status] == statuses
        held.end.set()
        other.end.set()
        assert [(await each).status for each in (first, second)] == [200, 200]
        assert limiter.busiest() == []


def test_wsgi_requests_count_by_their_keys() -> None:
    limiter = KeyedConcurrencyLimiter({"path:*": 1})
    app = WSGIMiddleware(App(), limiter, key=lambda environ: f"path:{environ['PATH_INFO']}")
    with limiter.acquire("path:/a"):
        refused = Reply(app, request(path="/a"))
        assert (refused.status, json.loads(refused.body)["detail"]) == (503, "limit")
        assert Reply(app, request(path="/b")).status == 200
    assert Reply(app, request(path="/a")).status == 200


@pytest.mark.parametrize("key", [lambda request: 1 / 0, lambda request: None, lambda request: "unknown", lambda _: [7]])
def test_a_request_whose_key_cannot_be_made_is_refused(key: KeyOf) -> None:
    limiter = KeyedConcurrencyLimiter({"path:*": 1})
    reply = Reply(WSGIMiddleware(App(), limiter, key=key), request())
    assert (reply.status, json.loads(reply.body)["detail"]) == (503, "no_key")
    assert limiter.busiest() == []


@pytest.mark.virtual_time
async def test_a_request_has_a_partition_at_its_key() -> None:
    limits = {"path:*": Keyed(2, partitions=Partitions({}, caps={"GET": 0.5}))}
    async with AsyncKeyedConcurrencyLimiter(limits) as limiter:
        terms: dict[str, Any] = {"key": path, "partition": lambda scope: scope["method"]}
        held, hello = Held(), ConcurrencyLimitMiddleware(Hello(), limiter, **terms)
        first = asyncio.create_task(call(ConcurrencyLimitMiddleware(held, limiter, **terms), http(path="/a")))
        await held.begun.wait()
        requests = [http(path="/a"), http("/a", "POST"), http(path="/b")]
        assert [(await call(hello, each)).status for each in requests] == [503, 200, 200]
        held.end.set()
        await first


def test_a_key_and_a_keyed_limiter_come_together() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    keyed = AsyncKeyedConcurrencyLimiter({"*": 1})
    with pytest.raises(TypeError, match="a AsyncKeyedConcurrencyLimiter needs key="):
        ConcurrencyLimitMiddleware(app, keyed)
    with pytest.raises(TypeError, match="key= is for a limiter by key"):
        ConcurrencyLimitMiddleware(app, AsyncConcurrencyLimiter(Fixed(1)), key=path)
    shared = AsyncSharedConcurrencyLimiter(MemoryStore(), {"*": 1})
    with pytest.raises(TypeError, match="sheddable= is for limiters of this process"):
        AsyncConcurrencyInterceptor(shared, key=path, sheddable=lambda details: True)


def by_call_repository_and_user(details: grpc.HandlerCallDetails) -> list[str]:
    told: dict[str, Any] = dict(details.invocation_metadata or ())
    return [f"call:{details.method}", f"repo:{told['repo']}", f"user:{told['user']}"]


THREE_DIMENSIONS = {"user:*": 2, "repo:*": 3, "call:*": 4}
"""How many calls at once of a user, of a repository and of a method."""


def test_grpc_calls_count_by_method_repository_and_user_at_once(stage: SetUp) -> None:
    def begin(repo: str, user: str, text: str = "hold") -> Any:
        return client.call("unary_unary", text, metadata=(("repo", repo), ("user", user)))

    options: dict[str, Any] = {"key": by_call_repository_and_user}
    with stage(Recording(1), workers=8, interceptor=options, keyed=THREE_DIMENSIONS) as scene, scene.client() as client:
        held = [begin("a", "ann"), begin("a", "ann"), begin("a", "bob")]
        scene.gate.meet(3)
        refused = [begin("b", "ann", "x"), begin("a", "bob", "x")]  # two of ann's are under way, three of a's
        assert [each.code for each in refused] == [grpc.StatusCode.RESOURCE_EXHAUSTED] * 2
        assert ["user:ann" in refused[0].details, "repo:a" in refused[1].details] == [True, True]
        assert begin("b", "bob", "x").answers() == ["x"]
        held.append(begin("b", "bob"))
        scene.gate.meet()
        fifth = begin("c", "cid", "x")  # four of the method are under way
        assert (fifth.code, "call:/test.Echo/unary_unary" in fifth.details) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            True,
        )
        scene.gate.open()
        assert [each.answers() for each in held] == [["hold"]] * 4
        until(lambda: scene.limiter.busiest() == [])
