"""ConcurrencyLimitMiddleware before each framework, behind a real server with real clients: one request at a time."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from websockets.sync.client import connect

from tests.depth import depth
from tests.integrations.clients import DEADLINE
from tests.integrations.matrix.serve import HTTP, WEBSOCKETS
from tests.integrations.matrix.served import Served, serving
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


def test_a_request_that_is_refused_is_charged_to_no_rule(served: Served) -> None:
    until(lambda: is_free(served))
    with held(served, "uncharged"):
        assert served.statuses(3, "/search", "uncharged") == [503] * 3
        assert served.left("search:uncharged") == 4
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


def test_a_handler_that_raises_returns_its_permit(served: Served) -> None:
    until(lambda: is_free(served))
    assert served.get("/broken", connection="close").status_code == 500
    until(lambda: is_free(served))


@pytest.mark.parametrize("served", [face for face in WEBSOCKETS if face in FACES], indirect=True)
def test_websockets_pass_by(served: Served) -> None:
    until(lambda: is_free(served))
    with (
        held(served, "socket"),
        connect(
            f"ws://127.0.0.1:{served.port}/ws", additional_headers={"x-user": f"by-{served.face}"}, proxy=None
        ) as websocket,
    ):
        websocket.send("hello")
        assert websocket.recv(DEADLINE) == "hello"
    until(lambda: is_free(served))
