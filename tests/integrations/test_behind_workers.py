"""Applications of Flask and Django behind real gunicorns and uvicorns, with real clients and a real store."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.depth import depth
from tests.integrations.gunicorn import ASGI_KINDS, KINDS, served
from tests.integrations.structured import read_limits
from tests.sync.stage import until

SITES = {
    **{f"flask-{kind}": ("flask_served:app", kind) for kind in KINDS},
    **{f"django-{kind}": ("django_served:wsgi", kind) for kind in KINDS},
    **{f"django-{kind}": ("django_served:asgi", kind) for kind in ASGI_KINDS},
}
_USUAL = ["flask-sync-preload", "django-uvicorn-workers"]
STREAM = b"000000000011111111112222222222"


class Site:
    """An application that is served, and its views: in Django those of streams and of `left` may be asynchronous."""

    def __init__(self, client: httpx.Client, app: str) -> None:
        self._client, self._suffix = client, "-async" if app.endswith("asgi") else ""
        self.searches = ["/search"] if app.startswith("flask") else ["/search", "/search-async"]

    def call(self, path: str, user: str) -> httpx.Response:
        return self._client.get(path, headers={"x-user": user, "connection": "close"})  # so that both workers are asked

    def stream(self, how: str) -> str:
        return f"/stream{self._suffix}/{how}"

    def gone(self, how: str, user: str) -> None:
        """Ask for a stream, and go away in the middle of it."""
        with self._client.stream("GET", self.stream(how), headers={"x-user": user}) as reply:
            assert next(reply.iter_raw())

    def until_left(self, key: str, wanted: int) -> None:
        """Wait for what happens in the server after the client has the whole response."""
        until(lambda: self.call(f"/left{self._suffix}?key={key}", "any").json() == wanted)

    def until_spent(self, path: str, user: str, limit: int) -> list[httpx.Response]:
        """Call until as many as the limit were admitted, and some more; a worker leaves the other one some tokens.

        A token is lost if its thread stalls before it spends it: then fewer are admitted, however often we call.
        """
        replies: list[httpx.Response] = []
        with ThreadPoolExecutor(10) as pool:
            for _ in range(100):
                replies += pool.map(lambda _: self.call(path, user), range(10))
                if sum(each.status_code == 200 for each in replies) >= limit:
                    break
            return replies + list(pool.map(lambda _: self.call(path, user), range(10)))


@pytest.fixture(scope="module", params=depth(_USUAL, list(SITES)))
def site(request: pytest.FixtureRequest, servers: Any) -> Iterator[Site]:
    app, kind = SITES[request.param]
    prefix = f"{request.param}-{os.getpid()}"
    with served(f"tests.integrations.{app}", kind, servers.get("valkey").url, prefix) as client:
        yield Site(client, app)


def limits_of(reply: httpx.Response) -> dict[str, Any]:
    return read_limits({name.lower(): value for name, value in reply.headers.raw})


def test_all_workers_together_admit_no_more_than_the_limit(site: Site) -> None:
    replies = site.until_spent("/inner/hello", "burst", 7)
    assert sum(each.status_code == 200 for each in replies) <= 7
    assert {each.status_code for each in replies} == {200, 429}
    for reply in replies:
        limit = limits_of(reply)["burst"]
        assert (limit.q, limit.w) == (7, 3600)
        assert ("retry-after" in reply.headers) == (reply.status_code == 429)
    refused = replies[-1]
    assert refused.headers["cache-control"] == "no-store"
    assert refused.json()["violated-policies"] == ["burst"]


def test_what_a_view_asks_for_is_one_limit_for_all_workers(site: Site) -> None:
    for path in site.searches:
        replies = site.until_spent(path, path.strip("/"), 5)
        assert 0 < sum(each.status_code == 200 for each in replies) <= 5
        assert list(limits_of(replies[0])) == ["search"]


def test_a_stream_arrives_whole_and_is_charged_by_what_was_sent(site: Site) -> None:
    assert site.call(site.stream("whole"), "whole").content == STREAM
    site.until_left("bytes:whole", 70)


def test_a_stream_that_breaks_is_charged_by_what_was_sent(site: Site) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        site.call(site.stream("broken"), "broken")
    site.until_left("bytes:broken", 70)


def test_a_stream_whose_client_goes_away_is_settled(site: Site) -> None:
    site.gone("endless", "gone")
    site.until_left("bytes:gone", 10)


def test_an_application_that_raises_is_a_500_of_its_own_and_settled(site: Site) -> None:
    assert [site.call("/fails", "raises").status_code for _ in range(2)] == [500, 500]
    site.until_left("broken:raises", 98)
