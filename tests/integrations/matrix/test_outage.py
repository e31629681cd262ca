"""A store that is killed while each framework serves requests by it: each rule decides, and nothing is a 500."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from batchlimit import AsyncRateLimiter, FailurePolicy, RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.integrations.source import options_of
from batchlimit.rules import Rule, Rules
from tests.awaiting import awaited
from tests.depth import depth
from tests.integrations import limited_grpc as calls
from tests.integrations.clients import DEADLINE
from tests.integrations.matrix.serve import HTTP
from tests.integrations.matrix.served import serving
from tests.integrations.stage import Call
from tests.integrations.structured import read_limits
from tests.servers import Server, redis_server, valkey_binary

FACES = depth(["asgi", "flask", "aiohttp"], HTTP)
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


@pytest.mark.parametrize("face", FACES)
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


CALLS = [
    Rule("open", "100/hour", key="open", match="/test.open/*", on_failure="open"),
    Rule("local", "100/hour", key="local", match="/test.local/*", on_failure=FailurePolicy.local(instances=1)),
    Rule("closed", "100/hour", key="closed", match="/test.closed/*", on_failure="closed"),
]


@contextmanager
def limiter_on(url: str, asynchronous: bool) -> Iterator[Any]:
    async def made() -> AsyncRateLimiter:
        return AsyncRateLimiter.from_url(url, **options)

    options: Any = {**options_of(Rules(CALLS)), "deadline": 30.0, "connect_timeout": 30.0, "sizer": FixedBatch(1)}
    limiter: Any = awaited(made) if asynchronous else RateLimiter.from_url(url, **options)
    try:
        yield limiter
    finally:
        awaited(limiter.close) if asynchronous else limiter.close()


def test_a_store_that_is_killed_under_calls_is_decided_by_each_rule(asynchronous: bool) -> None:
    ok, away = grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE
    with (
        redis_server(valkey_binary()) as url,
        limiter_on(url, asynchronous) as limiter,
        calls.serving(asynchronous, *CALLS, limiter=limiter) as scene,
        scene.client() as client,
    ):
        killer = Killer(url)

        def call(kind: str) -> Call:
            return client.call("unary_unary", "a", service=f"test.{kind}", timeout=DEADLINE)

        def load(number: int) -> tuple[str, grpc.StatusCode]:
            killer.meet(number)
            kind = KINDS[number % len(KINDS)]
            return kind, call(kind).code

        assert call("closed").code is ok
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(load, range(REQUESTS)))
        assert {code for kind, code in found if kind == "open"} == {ok}
        assert {code for kind, code in found if kind == "local"} == {ok}
        assert {code for kind, code in found if kind == "closed"} <= {ok, away}
        refused = call("closed")
        assert (refused.code, refused.told["batchlimit-reason"], refused.told["retry-after"]) == (away, "store", "1")
