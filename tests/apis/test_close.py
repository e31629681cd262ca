"""A limiter that is closed while others call it: the calls end by that, and nobody says that the store is away."""

import asyncio
import threading

import pytest

from batchlimit import AsyncRateLimiter, LimiterClosed, RateLimiter
from tests.nodes import await_fact
from tests.relay import Relay
from tests.servers import Server


def test_a_thread_that_looks_while_the_limiter_is_closed_is_told_so(
    valkey: Server, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    ends: list[Exception] = []

    def look(limiter: RateLimiter) -> None:
        try:
            limiter.peek("ann")
        except Exception as error:  # noqa: BLE001  whatever it is told
            ends.append(error)

    with Relay(valkey.url, 0.0) as relay:
        limiter = RateLimiter.from_url(relay.url, "5/s", prefix=prefix, deadline=60.0)
        limiter.peek("ann")
        relay.drop()
        looking = threading.Thread(target=look, args=(limiter,))
        looking.start()
        await_fact(lambda: not limiter._registry._opened._transport._idle, "a look is under way")  # type: ignore[attr-defined]
        limiter.close()
        looking.join(100)
    assert [type(each) for each in ends] == [LimiterClosed]
    assert caplog.messages == []


async def _closed_amid_a_look(url: str, prefix: str) -> None:
    with Relay(url, 0.0) as relay:
        limiter = AsyncRateLimiter.from_url(relay.url, "5/s", prefix=prefix, deadline=60.0)
        await limiter.peek("ann")
        relay.drop()
        look = asyncio.ensure_future(limiter.peek("ann"))
        await asyncio.sleep(0)
        await limiter.close()
        with pytest.raises(LimiterClosed):
            await look


def test_a_task_that_looks_while_the_limiter_is_closed_is_told_so(
    valkey: Server, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.run(_closed_amid_a_look(valkey.url, prefix))
    assert caplog.messages == []
