"""What niquests alone has: bodies that are streamed or not, and requests that are multiplexed."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypercorn.asyncio import serve
from hypercorn.config import Config

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.stores import MemoryStore
from tests.awaiting import awaited
from tests.integrations.asgi import lifespan, part, start
from tests.integrations.outgoing.test_outgoing import REFUSED_BY_BODY, RETRY_INFO, UNREADABLE, came_of
from tests.integrations.outgoing.upstream import Said, Upstream

niquests = pytest.importorskip("niquests")
from batchlimit.integrations.niquests import AsyncNiquestsAdapter, NiquestsAdapter  # noqa: E402


class Threads:
    """A session of threads."""

    rates: Any = RateLimiter

    def __init__(self, limiter: Any, multiplexed: bool = False, **options: Any) -> None:
        self.limiter, self.session = limiter, niquests.Session(multiplexed=multiplexed)
        self.session.trust_env = False
        if limiter is not None:
            self.session.mount("http://", NiquestsAdapter(limiter, **options))

    def __enter__(self) -> "Threads":
        return self

    def __exit__(self, *_: object) -> None:
        self.session.close()

    def get(self, url: str, stream: bool = False) -> Any:
        return self.session.get(url, stream=stream)

    def read(self, response: Any) -> Iterator[bytes]:
        """Read the body of a response that is streamed."""
        yield from response.iter_content(9)

    def gather(self) -> None:
        self.session.gather()

    def retry_after(self, key: str = "127.0.0.1") -> float:
        return float(self.limiter.decide(key).retry_after)


class Tasks(Threads):
    """A session of tasks."""

    rates = AsyncRateLimiter

    def __init__(self, limiter: Any, multiplexed: bool = False, **options: Any) -> None:
        self.limiter = limiter

        async def session() -> Any:
            made = niquests.AsyncSession(multiplexed=multiplexed)
            made.trust_env = False
            if limiter is not None:
                made.mount("http://", AsyncNiquestsAdapter(limiter, **options))
            return made

        self.session = awaited(session)

    def __exit__(self, *_: object) -> None:
        awaited(self.session.close)

    def get(self, url: str, stream: bool = False) -> Any:
        return awaited(self.session.get, url, stream=stream)

    def read(self, response: Any) -> Iterator[bytes]:
        parts = awaited(response.iter_content, 9)
        with contextlib.suppress(StopAsyncIteration):
            while True:
                yield awaited(parts.__anext__)

    def gather(self) -> None:
        awaited(self.session.gather)

    def retry_after(self, key: str = "127.0.0.1") -> float:
        return float(awaited(self.limiter.decide, key).retry_after)


@pytest.fixture(params=[Threads, Tasks], ids=["threads", "tasks"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_whose_body_says_when_to_come_back_is_read_and_passed_on(
    kind: Any, server: Upstream, stream: bool
) -> None:
    server.answers(REFUSED_BY_BODY)
    with kind(kind.rates(MemoryStore(), "1000/s"), observe=True) as client:
        response = client.get(server.url, stream=stream)
        assert (b"".join(client.read(response)) if stream else response.content) == RETRY_INFO
        assert 30 < client.retry_after() <= 34.1


@pytest.mark.parametrize("said", UNREADABLE)
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_whose_body_cannot_be_read_pauses_all_the_same_and_its_caller_gets_it_as_ever(
    kind: Any, server: Upstream, said: Said, stream: bool
) -> None:
    def got(client: Any) -> Any:
        response, parts = client.get(server.url, stream=stream), list[bytes]()
        error = came_of(lambda: parts.extend(client.read(response) if stream else [response.content]))
        return response.status_code, b"".join(parts), error

    server.answers(said, said)
    limiter = kind.rates(MemoryStore(), "1000/s")
    with kind(None) as plain, kind(limiter, wait=0, observe=True, unsaid=60) as client:
        assert came_of(lambda: got(client)) == came_of(lambda: got(plain))
        assert 50 < client.retry_after() <= 60.1


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

    listener = socket.create_server(("127.0.0.1", 0))
    served: Any = serve
    url, loop = f"http://127.0.0.1:{listener.getsockname()[1]}", asyncio.new_event_loop()
    stop, config = asyncio.Event(), Config()
    config.bind = [f"fd://{listener.detach()}"]
    thread = threading.Thread(
        target=loop.run_until_complete, args=[served(app, config, shutdown_trigger=stop.wait)], daemon=True
    )
    thread.start()
    yield url
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


def test_where_requests_are_multiplexed_a_response_is_heeded_when_it_comes(kind: Any, multiplexing: str) -> None:
    limiter = kind.rates(MemoryStore(), "1000/s")
    with kind(limiter, multiplexed=True, wait=0, unsaid=0, disable_http1=True) as client:
        responses = [client.get(multiplexing + path) for path in ("/", "/busy", "/")]
        assert [each.lazy for each in responses] == [True] * 3
        assert client.retry_after() == 0
        client.gather()
        assert [each.status_code for each in responses] == [200, 429, 200]
        assert 50 < client.retry_after() <= 60.1
        assert client.get(multiplexing).status_code == 429


def test_with_concurrency_none_is_multiplexed_and_all_give_their_places_back(kind: Any, multiplexing: str) -> None:
    limiter = kind.rates(MemoryStore(), "1000/s")
    with kind(limiter, multiplexed=True, wait=0, disable_http1=True, concurrency=1) as client:
        responses = [client.get(multiplexing) for _ in range(3)]
        assert [(each.lazy, each.status_code, each.content) for each in responses] == [(False, 200, b"hello")] * 3


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(TypeError, match="waits"):
        NiquestsAdapter(RateLimiter.from_url("memory://", "1/s"), waits=3)
