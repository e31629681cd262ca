"""How many requests are under way at once, to each host: a request is until its response was read or closed."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiohttp
import httpx
import httpx2
import openai
import pytest

from batchlimit import AsyncRateLimiter, Queue, RateLimiter
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, Keyed, KeyedConcurrencyLimiter
from batchlimit.integrations.httpx import AsyncLimitedTransport, LimitedTransport
from batchlimit.laws import AIMD
from batchlimit.stores import MemoryStore
from tests.awaiting import awaited
from tests.integrations.outgoing.clients import FAILURES, Aiohttp, Botocore, Tasks, Tasks2
from tests.integrations.outgoing.test_sdks import CHAT, TOO_MANY
from tests.integrations.outgoing.upstream import Said, Upstream, upstream

Make = Callable[..., Any]


class Slow:
    """A body whose second part comes when `rest` is set."""

    def __init__(self) -> None:
        self.rest = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        yield b"one"
        self.rest.wait(100)
        yield b"two"


def test_a_request_is_under_way_until_its_response_was_read(make: Make, server: Upstream) -> None:
    client, slow = make({"*": 1}, wait=0), Slow()
    server.answers(Said(body=slow))
    opened = client.open(server.url)
    assert client.counts() == (1, 0, 0, 0)
    assert client.get(server.url)[0] == client.refused
    slow.rest.set()
    assert opened.read() == b"onetwo"
    assert client.counts() == (0, 1, 0, 0)
    assert client.get(server.url) == (200, b"fine")
    assert len(server.asked) == 2
    opened.close()
    assert client.counts() == (0, 2, 0, 0)


def test_or_closed_unread(make: Make, server: Upstream) -> None:
    client, slow = make({"*": 1}, wait=0), Slow()
    server.answers(Said(body=slow))
    client.open(server.url).close()
    slow.rest.set()
    assert client.counts() == (0, 1, 0, 0)
    assert client.get(server.url) == (200, b"fine")


@pytest.mark.parametrize("said", [Said(204, {}, b""), Said(200, {}, b""), Said(200, {}, [])])
def test_a_response_without_a_body_ends_it(make: Make, server: Upstream, said: Said) -> None:
    client = make({"*": 1}, wait=0)
    server.answers(said)
    assert client.get(server.url)[1] == b""
    client.open(server.url, "HEAD").close()
    assert client.counts() == (0, 2, 0, 0)


def test_others_wait_for_a_place(make: Make, server: Upstream) -> None:
    client, slow = make({"*": Keyed(1, queue=Queue(10, max_wait=None))}), Slow()
    server.answers(Said(body=slow))
    opened = client.open(server.url)
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(client.get, server.url)
        while not client.concurrency.statistics().patterns["*"].waiting:
            assert not second.done()
        slow.rest.set()
        assert opened.read() == b"onetwo"
        opened.close()
        assert second.result(100) == (200, b"fine")


@pytest.mark.parametrize("limit", [1, lambda: AIMD(initial=1, minimum=1)], ids=["a number", "a law"])
def test_a_number_or_what_makes_a_law_is_the_limit_of_each_key(make: Make, server: Upstream, limit: Any) -> None:
    client, slow = make(limit, key="{port}", wait=0), Slow()
    with upstream() as other:
        server.answers(Said(body=slow))
        opened = client.open(server.url)
        assert (client.get(server.url)[0], client.get(other.url)[0]) == (client.refused, 200)
        slow.rest.set()
        opened.close()


def test_a_limit_is_that_of_the_fleet_where_it_is_shared(make: Make, server: Upstream) -> None:
    client, slow = make(shared={"*": 1}, wait=0), Slow()
    server.answers(Said(body=slow))
    opened = client.open(server.url)
    assert client.get(server.url)[0] == client.refused
    slow.rest.set()
    opened.close()
    assert client.get(server.url)[0] == 200
    assert sum(each.in_flight for each in client.concurrency.statistics().keys.values()) == 0


@pytest.mark.parametrize("status", [429, 503])
def test_a_refusal_of_upstream_is_a_drop(make: Make, server: Upstream, status: int) -> None:
    client = make({"*": 1}, wait=0)
    server.answers(Said(status, {"retry-after": "0"}))
    assert client.get(server.url)[0] == status
    assert client.counts() == (0, 0, 1, 0)


def test_so_the_limit_of_a_host_that_refuses_goes_down(make: Make, server: Upstream) -> None:
    client = make({"*": Keyed(lambda: AIMD(initial=10, minimum=1, backoff_ratio=0.5))}, wait=0, unsaid=0)
    changes: list[tuple[int, int]] = []
    client.concurrency.listen(lambda _, before, after: changes.append((before, after)))
    server.says = lambda: Said(429)
    for _ in range(3):
        client.get(server.url)
    assert changes == [(10, 5), (5, 2), (2, 1)]


def test_an_error_of_upstream_tells_nothing(make: Make, server: Upstream) -> None:
    client = make({"*": 1}, wait=0)
    server.answers(Said(500))
    assert client.get(server.url)[0] == 500
    assert client.counts() == (0, 0, 0, 1)


def test_a_request_that_fails_gives_its_place_back(make: Make) -> None:
    client = make({"*": 1}, wait=0)
    for _ in range(2):
        with pytest.raises(FAILURES):
            client.get("http://127.0.0.1:1")
    assert client.counts()[0] == 0


def test_one_whose_response_does_not_come_is_a_drop(make: Make, server: Upstream) -> None:
    client, opened = make({"*": 1}, wait=0, patience=0.1), threading.Event()
    server.says = lambda: Said(200 if opened.wait(100) else 500)
    with pytest.raises(FAILURES):
        client.get(server.url)
    opened.set()
    assert client.counts() == (0, 0, 1, 0)


def test_so_is_one_whose_body_stops(make: Make, server: Upstream) -> None:
    client, slow = make({"*": 1}, wait=0, patience=0.2), Slow()
    server.answers(Said(body=slow))
    with pytest.raises(FAILURES):
        client.get(server.url)
    slow.rest.set()
    assert client.counts() == (0, 0, 1, 0)


def _broken_off() -> Iterator[bytes]:
    yield b"one"
    raise ConnectionError


def test_one_whose_connection_is_lost_is_no_success(make: Make, server: Upstream) -> None:
    client = make({"*": 1}, wait=0)
    server.answers(Said(200, {"connection": "close"}, _broken_off()))
    with pytest.raises(FAILURES):
        client.get(server.url)
    assert client.counts()[:2] == (0, 0)


def test_a_retry_in_the_handler_of_an_error_is_no_failure(make: Make, server: Upstream) -> None:
    client = make({"*": 1}, wait=0)
    try:
        client.get("http://127.0.0.1:1")
    except FAILURES:
        assert client.get(server.url) == (200, b"fine")
    assert client.counts()[:2] == (0, 1)


def test_each_redirect_is_a_request_and_none_waits_for_the_one_before(make: Make, server: Upstream) -> None:
    client = make({"*": 1}, wait=0)
    if isinstance(client, Botocore):
        pytest.skip("it follows none")
    server.answers(Said(302, {"location": "/elsewhere"}, b"moved"), Said(302, {"location": "/again"}, [b"mo", b"ved"]))
    assert client.get(server.url) == (200, b"fine")
    assert client.counts() == (0, 3, 0, 0)


def test_a_request_without_a_place_is_not_charged_and_one_without_tokens_holds_none(
    make: Make, server: Upstream
) -> None:
    client, slow = make({"*": 1}, quota="2/hour", wait=0), Slow()
    server.answers(Said(body=slow))
    opened = client.open(server.url)
    assert client.get(server.url)[0] == client.refused
    slow.rest.set()
    opened.close()
    assert [client.get(server.url)[0] for _ in range(2)] == [200, client.refused]
    assert client.counts()[0] == 0


def test_a_cost_above_the_burst_is_answered(make: Make, server: Upstream) -> None:
    client = make({"*": 1}, quota="5/s", cost=lambda request: 6)
    assert client.get(server.url)[0] == client.refused
    assert (client.counts()[0], server.asked) == (0, [])


@pytest.mark.parametrize("wrong", [0, True, "10", 1.5])
def test_what_is_no_limit_is_an_error(make: Make, server: Upstream, wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        make(wrong).open(server.url)


@pytest.mark.parametrize("kind", [Tasks, Tasks2, Aiohttp])
@pytest.mark.parametrize("begun", [False, True], ids=["before its response", "amid its body"])
def test_a_request_that_is_cancelled_gives_its_place_back(kind: Any, server: Upstream, begun: bool) -> None:
    client, slow = kind({"*": 1}, wait=0), Slow()
    server.says = lambda: Said(body=slow) if begun or slow.rest.wait(100) else Said()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(awaited, _cancelled, client.client, server, begun)
        assert call.result(100) == "cancelled"
    assert client.counts() == (0, 0, 0, 1)
    slow.rest.set()
    client.close()


async def _cancelled(client: Any, server: Upstream, begun: bool) -> str:
    first, is_aiohttp = asyncio.Event(), isinstance(client, aiohttp.ClientSession)

    async def read() -> None:
        async with client.get(server.url) if is_aiohttp else client.stream("GET", server.url) as response:
            async for _ in response.content.iter_any() if is_aiohttp else response.aiter_raw():
                first.set()

    task = asyncio.ensure_future(read())
    while not (first.is_set() if begun else server.asked):  # noqa: ASYNC110  the latter is another thread's
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return "cancelled" if task.cancelled() else "ended"


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_a_request_that_waits_in_vain_for_a_connection_is_a_drop(library: Any, server: Upstream) -> None:
    limiter, slow = KeyedConcurrencyLimiter({"*": 2}), Slow()
    inner = library.HTTPTransport(limits=library.Limits(max_connections=1), trust_env=False)
    limited = LimitedTransport(RateLimiter(MemoryStore(), "1000/s"), transport=inner, concurrency=limiter)
    server.answers(Said(body=slow))
    with library.Client(transport=limited, trust_env=False) as client, client.stream("GET", server.url):
        with pytest.raises(library.PoolTimeout):
            client.get(server.url, timeout=library.Timeout(60, pool=0.05))
        found = limiter.statistics().patterns["*"]
        assert (found.in_flight, found.dropped) == (1, 1)
        slow.rest.set()
    assert limiter.statistics().patterns["*"].in_flight == 0


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_a_response_that_was_made_whole_is_not_under_way(library: Any) -> None:
    inner = library.MockTransport(lambda request: library.Response(200, content=b"fine"))
    limited = LimitedTransport(RateLimiter(MemoryStore(), "1000/s"), wait=0, transport=inner, concurrency=1)
    with library.Client(transport=limited) as client:
        assert [client.get("http://a/").status_code for _ in range(2)] == [200, 200]


def test_an_sdk_that_tries_again_does_not_wait_for_itself(server: Upstream) -> None:
    server.answers(TOO_MANY, CHAT)
    limiter = KeyedConcurrencyLimiter({"*": 1})
    limited = LimitedTransport(RateLimiter(MemoryStore(), "1000/s"), wait=10, concurrency=limiter)
    with httpx2.Client(transport=limited, trust_env=False) as http:
        client = openai.OpenAI(api_key="a", base_url=server.url, http_client=http, max_retries=1)
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])
    found = limiter.statistics().patterns["*"]
    assert (found.in_flight, found.dropped, found.succeeded) == (0, 1, 1)


def test_a_limiter_of_the_other_api_is_an_error() -> None:
    for transport, rates, limiter in (
        (LimitedTransport, RateLimiter, AsyncKeyedConcurrencyLimiter),
        (AsyncLimitedTransport, AsyncRateLimiter, KeyedConcurrencyLimiter),
    ):
        with pytest.raises(TypeError, match="concurrency must be one of"):
            transport(rates(MemoryStore(), "1/s"), concurrency=limiter({"*": 1}))  # type: ignore[arg-type]
