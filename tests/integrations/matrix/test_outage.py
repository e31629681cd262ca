"""A store that is killed while each framework serves requests by it: each rule decides, and nothing is a 500."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from tests.depth import depth
from tests.integrations.matrix.serve import GRPC, HTTP
from tests.integrations.matrix.served import limits_of, serving
from tests.servers import Server, redis_server, valkey_binary

FACES = depth(["asgi", "flask", "aiohttp"], HTTP)
"""One of each middleware, on tasks and on threads."""
KINDS = ("open", "local", "closed")
REQUESTS, KILLED_AT = 120, 40


def kill(url: str) -> None:
    with Server("own", url).client() as client:
        pid = client.info("server")["process_id"]
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("face", FACES)
def test_a_store_that_is_killed_under_load_is_decided_by_each_rule(face: str) -> None:
    with redis_server(valkey_binary()) as url, serving(face, url) as served:

        def load(number: int) -> tuple[str, int]:
            if number == KILLED_AT:
                kill(url)
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

        def load(number: int) -> tuple[str, grpc.StatusCode]:
            if number == KILLED_AT:
                kill(url)
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
