"""What httpx and httpx2 alone have: streams, transports of one's own, requests that are cancelled."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import httpx
import httpx2
import pytest

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.integrations.httpx import AsyncLimitedTransport, LimitedTransport
from batchlimit.stores import MemoryStore
from batchlimit.testing import FaultStore
from tests.integrations.outgoing.test_outgoing import REFUSED_BY_BODY, RETRY_INFO, UNREADABLE, came_of
from tests.integrations.outgoing.upstream import Said, Upstream


@pytest.fixture(params=[httpx, httpx2], ids=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> Any:
    return request.param


def _client(library: Any, quotas: Any) -> Any:
    limiter = RateLimiter(MemoryStore(), quotas)
    return library.Client(transport=LimitedTransport(limiter, wait=0), trust_env=False)


def test_one_that_is_not_sent_may_be_streamed_and_has_its_time(library: Any, server: Upstream) -> None:
    with _client(library, {"127.0.0.1": "0/s"}) as client:
        with client.stream("GET", server.url) as response:
            assert b"quota" in b"".join(response.iter_raw())
        assert client.post(server.url, content=iter([b"x"])).elapsed.total_seconds() >= 0.0


def test_a_refusal_that_was_read_may_be_streamed(library: Any, server: Upstream) -> None:
    server.answers(REFUSED_BY_BODY)
    limited = LimitedTransport(RateLimiter(MemoryStore(), "1000/s"), observe=True)
    with library.Client(transport=limited, trust_env=False) as client, client.stream("GET", server.url) as response:
        assert b"".join(response.iter_raw()) == RETRY_INFO


@pytest.mark.parametrize("said", UNREADABLE)
def test_such_a_refusal_may_be_streamed_as_far_as_it_came(library: Any, server: Upstream, said: Said) -> None:
    def streamed(client: Any) -> Any:
        parts: list[bytes] = []
        with client.stream("GET", server.url) as response:
            error = came_of(lambda: parts.extend(response.iter_raw()))
        return response.status_code, b"".join(parts), error

    server.answers(said, said)
    limited = LimitedTransport(RateLimiter(MemoryStore(), "1000/s"), observe=True)
    with library.Client(trust_env=False) as plain, library.Client(transport=limited, trust_env=False) as client:
        assert streamed(client) == streamed(plain)


def test_a_refusal_that_says_it_in_a_header_is_not_read(library: Any, server: Upstream) -> None:
    server.answers(Said(429, REFUSED_BY_BODY.headers | {"retry-after-ms": "50000"}, RETRY_INFO))
    limiter = RateLimiter(MemoryStore(), "1000/s")
    limited = LimitedTransport(limiter, observe=True)
    with library.Client(transport=limited, trust_env=False) as client, client.stream("GET", server.url) as response:
        assert not isinstance(response.stream, library.ByteStream)
        assert 40 < limiter.decide("127.0.0.1").retry_after <= 50.1


def test_a_transport_of_ones_own_sends(library: Any) -> None:
    inner = library.MockTransport(lambda request: library.Response(204))
    limiter = RateLimiter(MemoryStore(), "1/hour")
    with library.Client(transport=LimitedTransport(limiter, wait=0, transport=inner)) as client:
        assert [client.get("http://a/").status_code for _ in range(2)] == [204, 429]


def test_a_pause_that_the_store_does_not_hear_of_is_kept_by_this_process(library: Any, server: Upstream) -> None:
    store = FaultStore()
    limiter = RateLimiter(store, "1000/s", on_failure="open")

    def say() -> Said:
        store.down = True
        return Said(429, {"retry-after": "60"})

    server.says = say
    with library.Client(transport=LimitedTransport(limiter, wait=0), trust_env=False) as client:
        assert [client.get(server.url).status_code for _ in range(2)] == [429, 429]
    assert len(server.asked) == 1


def test_a_stream_is_passed_on_as_it_comes(library: Any, server: Upstream) -> None:
    server.answers(Said(body=[b"one", b"two", b"three"]))
    limiter = RateLimiter(MemoryStore(), "1000/s")
    with (
        library.Client(transport=LimitedTransport(limiter), trust_env=False) as client,
        client.stream("GET", server.url) as response,
    ):
        assert b"".join(response.iter_raw()) == b"onetwothree"
        assert response.is_stream_consumed


async def _until(fact: Callable[[], bool]) -> None:
    while not fact():  # noqa: ASYNC110  another thread's
        await asyncio.sleep(0)


def test_a_cancelled_request_leaves_its_place_and_its_connection(library: Any, server: Upstream) -> None:
    """One that waits for tokens, and one that waits for the response: those behind it are served."""

    async def main() -> tuple[int, int]:
        opened = threading.Event()
        server.says = lambda: Said() if opened.wait(100) else Said(500)
        async with AsyncRateLimiter(MemoryStore(), "2/hour") as limiter:
            limits = library.Limits(max_connections=1)
            inner = library.AsyncHTTPTransport(limits=limits, trust_env=False)
            limited = AsyncLimitedTransport(limiter, wait=None, transport=inner)
            async with library.AsyncClient(transport=limited) as client:
                under_way = asyncio.ensure_future(client.get(server.url))
                await _until(lambda: bool(server.asked))
                under_way.cancel()
                await asyncio.wait([under_way])
                opened.set()
                second = await client.get(server.url)
                waiting = asyncio.ensure_future(client.get(server.url))
                await _until(lambda: limiter.statistics().waiting == 1)
                waiting.cancel()
                await asyncio.wait([waiting])
                return second.status_code, limiter.statistics().waiting

    assert asyncio.run(main()) == (200, 0)


def test_neither_library_is_imported_by_the_transports() -> None:
    program = "import sys, batchlimit.integrations.httpx; print({'httpx', 'httpx2', 'requests'} & {*sys.modules})"
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=300)
    assert run.stdout.strip() == "set()"
