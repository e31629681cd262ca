"""A session with a limiting middleware: what is sent and what is not."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import aiohttp
import pytest

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.integrations.aiohttp_client import LimitedClient
from batchlimit.stores import MemoryStore
from batchlimit.testing import AsyncFaultStore
from tests.integrations.test_httpx import LITTLE_IS_LEFT, REFUSED_BY_BODY, RETRY_INFO, UNREADABLE
from tests.integrations.upstream import Said, Upstream, upstream

T = TypeVar("T")


@pytest.fixture
def server() -> Iterator[Upstream]:
    with upstream() as found:
        yield found


def run(quota: str, work: Callable[[aiohttp.ClientSession, AsyncRateLimiter], Awaitable[T]], **options: Any) -> T:
    store = options.pop("store", MemoryStore())

    async def main() -> T:
        async with AsyncRateLimiter(store, quota) as limiter:
            limited = LimitedClient(limiter, **options)
            async with aiohttp.ClientSession(middlewares=(limited,)) as session:
                return await work(session, limiter)

    return asyncio.run(main())


def test_a_request_that_has_tokens_is_sent_and_its_response_is_untouched(server: Upstream) -> None:
    server.answers(Said(201, {"x-one": "two"}, [b"ma", b"de"]))

    async def work(session: aiohttp.ClientSession, _: AsyncRateLimiter) -> tuple[int, str, bytes]:
        async with session.get(server.url + "/a?b=c") as response:
            return response.status, response.headers["x-one"], await response.read()

    assert run("1000/s", work) == (201, "two", b"made")
    assert server.asked == [("GET", "/a?b=c")]


def test_one_that_would_wait_too_long_is_not_sent_and_answered_429(server: Upstream) -> None:
    async def work(session: aiohttp.ClientSession, _: AsyncRateLimiter) -> None:
        async with session.get(server.url) as response:
            assert response.status == 200
        async with session.get(server.url) as response:
            assert (response.status, response.reason, response.ok) == (429, "Too Many Requests", False)
            assert 3500 < int(response.headers["Retry-After"]) <= 3600
            assert (await response.json(content_type=None))["status"] == 429
            with pytest.raises(aiohttp.ClientResponseError, match="429"):
                response.raise_for_status()
        response = await session.post(server.url, data=b"a body", raise_for_status=False)
        assert [part async for part in response.content.iter_any()] != []
        response.close()

    run("1/hour", work, wait=0.5)
    assert len(server.asked) == 1


def test_a_session_that_raises_for_status_does_so(server: Upstream) -> None:
    async def work(session: aiohttp.ClientSession, _: AsyncRateLimiter) -> None:
        with pytest.raises(aiohttp.ClientResponseError) as refused:
            await session.get(server.url, raise_for_status=True)
        assert refused.value.status == 429
        assert refused.value.headers is not None
        assert refused.value.headers["x-batchlimit"] == "not sent"

    run("0/s", work, wait=0)


@pytest.mark.parametrize("status", [429, 503])
def test_what_upstream_says_pauses_its_key(server: Upstream, status: int) -> None:
    server.answers(Said(status, {"retry-after": "60"}, b"later"))

    async def work(session: aiohttp.ClientSession, limiter: AsyncRateLimiter) -> tuple[bytes, int, float]:
        async with session.get(server.url) as response:
            body = await response.read()
        async with session.get(server.url) as response:
            return body, response.status, (await limiter.decide("127.0.0.1")).retry_after

    body, second, wait = run("1000/s", work, wait=0)
    assert (body, second) == (b"later", 429)
    assert 50 < wait <= 60.1
    assert len(server.asked) == 1


def test_where_little_is_left_calls_are_held_back_before_a_429(server: Upstream) -> None:
    server.answers(Said(200, LITTLE_IS_LEFT))

    async def work(session: aiohttp.ClientSession, limiter: AsyncRateLimiter) -> list[int]:
        statuses = []
        for _ in range(2):
            async with session.get(server.url) as response:
                statuses.append(response.status)
        return statuses

    assert run("1000/s", work, wait=0, observe=True) == [200, 429]
    assert len(server.asked) == 1


def test_a_refusal_whose_body_says_when_to_come_back_is_read_and_passed_on(server: Upstream) -> None:
    server.answers(REFUSED_BY_BODY)

    async def work(session: aiohttp.ClientSession, limiter: AsyncRateLimiter) -> tuple[bytes, float]:
        async with session.get(server.url) as response:
            return await response.read(), (await limiter.decide("127.0.0.1")).retry_after

    body, wait = run("1000/s", work, observe=True)
    assert body == RETRY_INFO
    assert 30 < wait <= 34.1


@pytest.mark.parametrize("said", UNREADABLE)
def test_a_refusal_whose_body_cannot_be_read_pauses_all_the_same_and_its_caller_gets_it_as_ever(
    server: Upstream, said: Said
) -> None:
    server.answers(said, said)

    async def got(session: aiohttp.ClientSession) -> tuple[int, Any]:
        async with session.get(server.url) as response:
            try:
                return response.status, await response.read()
            except Exception as error:  # noqa: BLE001  as the library has it
                return response.status, type(error)

    async def work(session: aiohttp.ClientSession, limiter: AsyncRateLimiter) -> tuple[Any, Any, float]:
        async with aiohttp.ClientSession() as plain:
            return await got(session), await got(plain), (await limiter.decide("127.0.0.1")).retry_after

    limited, plain, wait = run("1000/s", work, wait=0, observe=True, unsaid=60)
    assert limited == plain
    assert 50 < wait <= 60.1


def test_each_redirect_is_charged(server: Upstream) -> None:
    server.answers(Said(302, {"location": "/elsewhere"}), Said(302, {"location": "/again"}))

    async def work(session: aiohttp.ClientSession, _: AsyncRateLimiter) -> int:
        async with session.get(server.url) as response:
            return response.status

    assert run("2/hour", work, wait=0) == 429
    assert len(server.asked) == 2


def test_while_the_store_is_away_a_request_is_answered_503(server: Upstream) -> None:
    async def work(session: aiohttp.ClientSession, _: AsyncRateLimiter) -> int:
        async with session.get(server.url) as response:
            return response.status

    assert run("1/s", work, wait=0, store=AsyncFaultStore(down=True)) == 503
    assert server.asked == []


def test_a_limiter_of_the_other_api_is_an_error() -> None:
    with pytest.raises(TypeError, match="AsyncRateLimiter"):
        LimitedClient(RateLimiter.from_url("memory://", "1/s"))  # type: ignore[arg-type]
