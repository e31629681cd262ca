"""A limiter that is closed while others call it: the calls end by that, and nobody says that the store is away."""

import asyncio
import threading
from typing import Any

import pytest

from batchlimit import AsyncRateLimiter, LimiterClosed, RateLimiter
from tests.nodes import await_fact
from tests.relay import Relay
from tests.servers import Server

CALLS = pytest.mark.parametrize("call", ["peek", "refund"])  # a refund of what was not leased goes to the store


@CALLS
def test_a_thread_that_asks_while_the_limiter_is_closed_is_told_so(
    valkey: Server, prefix: str, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    ends: list[Exception] = []

    def ask(limiter: RateLimiter) -> None:
        try:
            getattr(limiter, call)("ann")
        except Exception as error:  # noqa: BLE001  whatever it is told
            ends.append(error)

    with Relay(valkey.url, 0.0) as relay:
        limiter: Any = RateLimiter.from_url(relay.url, "5/s", prefix=prefix, deadline=60.0)
        limiter.peek("ann")
        relay.drop()
        asking = threading.Thread(target=ask, args=(limiter,))
        asking.start()
        await_fact(lambda: not limiter._registry._opened._transport._idle, "an ask is under way")
        limiter.close()
        asking.join(100)
    assert [type(each) for each in ends] == [LimiterClosed]
    assert caplog.messages == []


async def _closed_amid(call: str, url: str, prefix: str) -> None:
    with Relay(url, 0.0) as relay:
        limiter = AsyncRateLimiter.from_url(relay.url, "5/s", prefix=prefix, deadline=60.0)
        await limiter.peek("ann")
        relay.drop()
        asking = asyncio.ensure_future(getattr(limiter, call)("ann"))
        await asyncio.sleep(0)
        await limiter.close()
        with pytest.raises(LimiterClosed):
            await asking


@CALLS
def test_a_task_that_asks_while_the_limiter_is_closed_is_told_so(
    valkey: Server, prefix: str, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    asyncio.run(_closed_amid(call, valkey.url, prefix))
    assert caplog.messages == []
