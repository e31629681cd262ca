"""Every library's transport names a request alike: the same rules hold, whichever sends it."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
import requests

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.integrations.aiohttp_client import LimitedClient
from batchlimit.integrations.httpx import LimitedTransport
from batchlimit.integrations.requests import LimitedAdapter
from batchlimit.stores import MemoryStore
from tests.integrations.outgoing.upstream import Upstream, upstream

KEY = "{method} {scheme} {host} {port} {path}"
Send = Callable[[str, str, str, Any], tuple[int, str, bytes]]


@pytest.fixture
def proxy() -> Iterator[Upstream]:
    """A server that is asked for URLs of any host."""
    with upstream() as found:
        yield found


def _httpx(library: Any) -> Send:
    def send(method: str, url: str, proxy: str, quota: Any) -> tuple[int, str, bytes]:
        limited = LimitedTransport(
            RateLimiter(MemoryStore(), quota), KEY, wait=0, transport=library.HTTPTransport(proxy=proxy)
        )
        with library.Client(transport=limited) as client:
            response = client.request(method, url)
            return response.status_code, response.reason_phrase, response.content

    return send


def _requests(method: str, url: str, proxy: str, quota: Any) -> tuple[int, str, bytes]:
    with requests.Session() as session:
        session.mount("http://", LimitedAdapter(RateLimiter(MemoryStore(), quota), KEY, wait=0))
        response = session.request(method, url, proxies={"http": proxy})
        return response.status_code, response.reason, response.content


def _niquests(method: str, url: str, proxy: str, quota: Any) -> tuple[int, str, bytes]:
    library = pytest.importorskip("niquests")
    from batchlimit.integrations.niquests import NiquestsAdapter

    with library.Session() as session:
        session.mount("http://", NiquestsAdapter(RateLimiter(MemoryStore(), quota), KEY, wait=0))
        response = session.request(method, url, proxies={"http": proxy})
        return response.status_code, response.reason, response.content


def _aiohttp(method: str, url: str, proxy: str, quota: Any) -> tuple[int, str, bytes]:
    async def main() -> tuple[int, str, bytes]:
        async with AsyncRateLimiter(MemoryStore(), quota) as limiter:
            limited = LimitedClient(limiter, KEY, wait=0)
            async with (
                aiohttp.ClientSession(middlewares=(limited,)) as session,
                session.request(method, url, proxy=proxy) as response,
            ):
                return response.status, str(response.reason), await response.read()

    return asyncio.run(main())


@pytest.fixture(
    params=[_httpx(httpx), _httpx(httpx2), _requests, _niquests, _aiohttp],
    ids=["httpx", "httpx2", "requests", "niquests", "aiohttp"],
)
def send(request: pytest.FixtureRequest) -> Send:
    found: Send = request.param
    return found


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://api.example.com", "GET http api.example.com  /"),
        ("http://API.Example.com:80/v1?page=2#top", "GET http api.example.com  /v1"),
        ("http://api.example.com:8080/a/../b", "GET http api.example.com 8080 /b"),
        ("http://user:secret@api.example.com/", "GET http api.example.com  /"),
        ("http://www.b\u00fccher.example/gr\u00f6\u00dfe", "GET http www.xn--bcher-kva.example  /gr\u00f6\u00dfe"),
        ("http://b\u00fccher.example/a%20b%2Fc d", "GET http xn--bcher-kva.example  /a b/c d"),
        ("http://api.example.com/%C3%BC%FF[x]", "GET http api.example.com  /\u00fc\ufffd[x]"),
        ("http://[::1]:8080/", "GET http ::1 8080 /"),
    ],
)
def test_all_name_a_request_alike(proxy: Upstream, send: Send, url: str, key: str) -> None:
    keys: list[str] = []

    def quota(asked: str) -> str:
        keys.append(asked)
        return "1000/s"

    assert send("GET", url, proxy.url, quota)[0] == 200
    assert (keys, len(proxy.asked)) == ([key], 1)


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_what_is_answered_has_a_reason_and_a_body_unless_only_its_head_was_asked_for(
    proxy: Upstream, send: Send, method: str
) -> None:
    status, reason, body = send(method, "http://api.example.com/", proxy.url, "0/s")
    assert (status, reason, bool(body)) == (429, "Too Many Requests", method == "GET")
    assert proxy.asked == []
