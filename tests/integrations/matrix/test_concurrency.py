"""ConcurrencyLimitMiddleware before each framework, behind a real server with real clients: one request at a time."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from batchlimit.rules import Rules
from batchlimit.stores import RedisStore
from tests.depth import depth
from tests.integrations.clients import DEADLINE
from tests.integrations.faces.rules import RULES
from tests.integrations.matrix.serving import HTTP, WEBSOCKETS, Served, serving
from tests.integrations.structured import read_limits
from tests.servers import Server, redis_server, valkey_binary
from tests.sync.stage import until

FACES = depth(["asgi", "django-async", "flask"], [face for face in HTTP if face != "aiohttp"])
"""All but aiohttp, which is neither ASGI nor WSGI."""


@pytest.fixture(scope="module", params=FACES)
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with serving(request.param, permits=1) as served:
        yield served


@contextmanager
def held(served: Served, user: str) -> Iterator[None]:
    """A client reads a stream that has no end, and goes away."""
    with served.client.stream("GET", "/endless", headers={"x-user": user}) as reply:
        assert reply.status_code == 200
        parts = reply.iter_raw()
        assert next(parts)
        yield


def is_free(served: Served) -> bool:
    return served.get("/hello").status_code == 200


def test_while_a_stream_is_sent_others_get_a_503_at_once_and_then_their_answer(served: Served) -> None:
    until(lambda: is_free(served))
    with held(served, "stream"):
        for _ in range(3):
            refused = served.get("/hello")
            assert refused.status_code == 503
            assert refused.headers["cache-control"] == "no-store"
            assert refused.headers["content-type"] == "application/problem+json"
            assert refused.json()["type"].endswith("#temporary-reduced-capacity")
    until(lambda: is_free(served))


def test_of_bursts_some_requests_are_served_and_nothing_else_than_200_and_503_is_answered(served: Served) -> None:
    """A server's thread may return the permit of the request before a whole burst later: then that has 503 alone."""

    def is_served() -> bool:
        with ThreadPoolExecutor(6) as pool:
            statuses = set(pool.map(lambda _: served.get("/hello").status_code, range(30)))
        assert statuses <= {200, 503}
        return 200 in statuses

    until(is_served)
    until(lambda: is_free(served))


# What an application leased goes back to a real store when its server is told to stop
KEY = "bytes:whole"


@pytest.mark.parametrize(
    "face", depth(("asgi", "quart", "aiohttp"), WEBSOCKETS)
)  # those that hear that the server stops
def test_tokens_go_back_when_a_server_stops(face: str, valkey: Server, prefix: str) -> None:
    url = valkey.url
    with serving(face, url, prefix=prefix) as served:
        assert len(served.get("/stream", "whole").content) == 30
        served.until_left(KEY, 70)
    store = RedisStore.from_url(url, prefix=prefix)
    try:
        assert store.peek(KEY, Rules(RULES).quotas["bytes:*"]).level == 70  # of 50 that it had leased 20 were left
    finally:
        store.close()


# A store that is killed while each framework serves requests by it: each rule decides
KILLED = depth(["asgi", "flask", "aiohttp"], HTTP)
"""One of each middleware, on tasks and on threads."""
KINDS = ("open", "local", "closed")
REQUESTS, KILLED_AT, SURELY_AFTER = 120, 40, 90
"""The requests from `SURELY_AFTER` on wait for the end of the store; those before it race it."""


class Killer:
    """Kills a store amid the requests."""

    def __init__(self, url: str) -> None:
        self._url, self._done = url, threading.Event()

    def meet(self, number: int) -> None:
        """Be called before each request."""
        if number == KILLED_AT:
            with Server("own", self._url).client() as client:
                pid = client.info("server")["process_id"]
            os.kill(pid, signal.SIGKILL)
            self._done.set()
        elif number >= SURELY_AFTER:
            assert self._done.wait(DEADLINE)


@pytest.mark.parametrize("face", KILLED)
def test_a_store_that_is_killed_under_load_is_decided_by_each_rule(face: str) -> None:
    with redis_server(valkey_binary()) as url, serving(face, url) as served:
        killer = Killer(url)

        def load(number: int) -> tuple[str, int]:
            killer.meet(number)
            kind = KINDS[number % len(KINDS)]
            return kind, served.get(f"/{kind}").status_code

        assert served.statuses(1, "/closed") == [200]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(load, range(REQUESTS)))
        assert {status for kind, status in found if kind == "open"} == {200}
        assert {status for kind, status in found if kind == "local"} == {200}
        assert {status for kind, status in found if kind == "closed"} <= {200, 503}
        assert found[-1] == ("closed", 503)
        reply = served.get("/closed")
        assert (reply.status_code, reply.headers["cache-control"]) == (503, "no-store")
        assert int(reply.headers["retry-after"]) == 1
        if face != "django-rest":  # it answers by itself
            assert reply.json()["type"].endswith("#temporary-reduced-capacity")
        assert set(read_limits(served.get("/local").headers)) == {"local"}
