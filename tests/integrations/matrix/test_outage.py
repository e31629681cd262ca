"""A store that is killed while each framework serves requests by it: each rule decides, and nothing is a 500."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from tests.depth import depth
from tests.integrations.clients import DEADLINE
from tests.integrations.matrix.serve import GRPC, HTTP
from tests.integrations.matrix.served import limits_of, serving
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
        assert set(limits_of(served.get("/local"))) == {"local"}


@pytest.mark.parametrize("face", GRPC)
def test_a_store_that_is_killed_under_calls_is_decided_by_each_rule(face: str) -> None:
    ok, away = grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE
    with redis_server(valkey_binary()) as url, serving(face, url) as served, served.calls() as call:
        killer = Killer(url)

        def load(number: int) -> tuple[str, grpc.StatusCode]:
            killer.meet(number)
            kind = KINDS[number % len(KINDS)]
            return kind, call(kind.title(), "a").code

        assert call("Closed", "a").code is ok
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(load, range(REQUESTS)))
        assert {code for kind, code in found if kind == "open"} == {ok}
        assert {code for kind, code in found if kind == "local"} == {ok}
        assert {code for kind, code in found if kind == "closed"} <= {ok, away}
        refused = call("Closed", "a")
        assert (refused.code, refused.told["batchlimit-reason"], refused.told["retry-after"]) == (away, "store", "1")
