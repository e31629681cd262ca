"""What niquests alone has: bodies that are streamed or not, and requests that are multiplexed."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from batchlimit import RateLimiter
from tests.awaiting import awaited
from tests.integrations.asgi import lifespan, part, start
from tests.integrations.backing import Backing
from tests.integrations.outgoing.clients import AsyncNiquests, Client, Niquests
from tests.integrations.outgoing.test_outgoing import REFUSED_BY_BODY, RETRY_INFO
from tests.integrations.outgoing.upstream import Said, Upstream
from tests.integrations.servers import hypercorn

pytest.importorskip("niquests")
from batchlimit.integrations.niquests import NiquestsAdapter

BOTH = pytest.mark.parametrize("make", [Niquests, AsyncNiquests], indirect=True, ids=["threads", "tasks"])
Make = Callable[..., Any]


def do(client: Client, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return awaited(call, *args, **options) if client.is_async else call(*args, **options)


def ask(client: Any, url: str, stream: bool = False) -> Any:
    return do(client, client.client.get, url, stream=stream)


@BOTH
def test_a_refusal_that_is_not_streamed_is_read_whole_and_heeded(make: Make, server: Upstream) -> None:
    server.answers(REFUSED_BY_BODY)
    client = make(observe=True)
    assert ask(client, server.url).content == RETRY_INFO
    assert 30 < client.retry_after() <= 34.1


@pytest.fixture
def multiplexing() -> Iterator[str]:
    """A server of HTTP/2 that answers 200, and 429 at /busy."""

    async def app(scope: dict[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        busy = scope["path"] == "/busy"
        await send(start(429 if busy else 200, [(b"retry-after", b"60")] if busy else []))
        await send(part(b"hello"))

    with hypercorn(app, Backing([])) as port:
        yield f"http://127.0.0.1:{port}"


@BOTH
def test_where_requests_are_multiplexed_a_response_is_heeded_when_it_comes(make: Make, multiplexing: str) -> None:
    client = make(multiplexed=True, wait=0, unsaid=0, disable_http1=True)
    responses = [ask(client, multiplexing + path) for path in ("/", "/busy", "/")]
    assert [each.lazy for each in responses] == [True] * 3
    assert client.retry_after() == 0
    do(client, client.client.gather)
    assert [each.status_code for each in responses] == [200, 429, 200]
    assert 50 < client.retry_after() <= 60.1
    assert ask(client, multiplexing).status_code == 429


@BOTH
def test_with_concurrency_none_is_multiplexed_and_all_give_their_places_back(make: Make, multiplexing: str) -> None:
    client = make(1, multiplexed=True, wait=0, disable_http1=True)
    responses = [ask(client, multiplexing) for _ in range(3)]
    assert [(each.lazy, each.status_code, each.content) for each in responses] == [(False, 200, b"hello")] * 3


@pytest.mark.parametrize("make", [AsyncNiquests], indirect=True)
def test_a_response_whose_closing_is_cancelled_gives_its_place_back(
    make: Make, server: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = pytest.importorskip("niquests.packages.urllib3").AsyncHTTPResponse
    close: Any = kind.close

    async def closes_slowly(response: Any) -> None:
        await asyncio.sleep(0)
        await close(response)

    async def leaves(response: Any) -> None:
        closing = asyncio.ensure_future(response.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])

    server.says = lambda: Said(body=[b"long"])
    client = make(1, wait=0)
    monkeypatch.setattr(kind, "close", closes_slowly)
    response = ask(client, server.url, stream=True)
    do(client, leaves, response)
    assert ask(client, server.url).status_code == 200
    do(client, response.close)


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(TypeError, match="waits"):
        NiquestsAdapter(RateLimiter.from_url("memory://", "1/s"), waits=3)
