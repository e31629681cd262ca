"""A Flask application with limits behind a real gunicorn of every kind, with real clients and a real store."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.integrations.gunicorn import KINDS, served
from tests.integrations.structured import read_limits


@pytest.fixture(scope="module", params=KINDS)
def client(request: pytest.FixtureRequest, servers: Any) -> Iterator[httpx.Client]:
    prefix = f"flask-{request.param}-{os.getpid()}"
    with served("tests.integrations.flask_served:app", request.param, servers.get("valkey").url, prefix) as client:
        yield client


def call(client: httpx.Client, path: str, user: str) -> httpx.Response:
    return client.get(path, headers={"x-user": user, "connection": "close"})  # so that both workers are asked


def left(client: httpx.Client, key: str) -> int:
    found: int = call(client, f"/left?key={key}", "").json()
    return found


def until_left(client: httpx.Client, key: str, wanted: int) -> None:
    """Wait for what happens in the server after the client has the whole response."""
    for _ in range(20_000):
        if left(client, key) == wanted:
            return
    raise AssertionError(f"it is {left(client, key)}")


def until_spent(client: httpx.Client, path: str, user: str, limit: int) -> list[httpx.Response]:
    """Call until as many as the limit were admitted: while little is left, a worker leaves some to the other one."""
    replies: list[httpx.Response] = []
    with ThreadPoolExecutor(10) as pool:
        for _ in range(2_000):
            replies += pool.map(lambda _: call(client, path, user), range(10))
            if sum(each.status_code == 200 for each in replies) >= limit:
                return replies + list(pool.map(lambda _: call(client, path, user), range(10)))
    raise AssertionError("the limit was never spent")


def test_all_workers_together_admit_as_many_as_the_limit(client: httpx.Client) -> None:
    replies = until_spent(client, "/hello/ann", "burst", 7)
    assert sum(each.status_code == 200 for each in replies) == 7
    assert {each.status_code for each in replies} == {200, 429}
    for reply in replies:
        limit = read_limits({name.lower(): value for name, value in reply.headers.raw})["burst"]
        assert (limit.q, limit.w) == (7, 3600)
        assert ("retry-after" in reply.headers) == (reply.status_code == 429)
    refused = replies[-1]
    assert refused.headers["cache-control"] == "no-store"
    assert refused.json()["violated-policies"] == ["burst"]


def test_what_a_view_asks_for_is_one_limit_for_all_workers(client: httpx.Client) -> None:
    replies = until_spent(client, "/search", "ann", 5)
    assert sum(each.status_code == 200 for each in replies) == 5
    assert list(read_limits({name.lower(): value for name, value in replies[0].headers.raw})) == ["search"]


def test_a_stream_arrives_whole_and_is_charged_by_what_was_sent(client: httpx.Client) -> None:
    assert call(client, "/stream/whole", "whole").content == b"000000000011111111112222222222"
    until_left(client, "bytes:whole", 70)


def test_a_stream_that_breaks_is_charged_by_what_was_sent(client: httpx.Client) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        call(client, "/stream/broken", "broken")
    until_left(client, "bytes:broken", 70)


def test_a_stream_whose_client_goes_away_is_settled(client: httpx.Client) -> None:
    with client.stream("GET", "/stream/endless", headers={"x-user": "gone"}) as reply:
        assert next(reply.iter_raw())  # the client goes away when it is forgotten
    for _ in range(20_000):
        if left(client, "bytes:gone") == 0:
            return
    raise AssertionError("it was never charged")


def test_an_application_that_raises_is_a_500_of_its_own_and_settled(client: httpx.Client) -> None:
    assert [call(client, "/broken", "raises").status_code for _ in range(2)] == [500, 500]
    until_left(client, "broken:raises", 98)
