"""What aiohttp alone has: a session that raises for a status, and bodies of requests that are not sent."""

import aiohttp
import pytest

from batchlimit import AsyncRateLimiter
from batchlimit.integrations.aiohttp_client import LimitedClient
from batchlimit.stores import MemoryStore
from tests.awaiting import awaited
from tests.integrations.outgoing.upstream import Upstream


def test_a_request_that_is_not_sent_is_answered_as_the_library_would(server: Upstream) -> None:
    async def main() -> None:
        limited = LimitedClient(AsyncRateLimiter(MemoryStore(), "0/s"), wait=0)
        async with aiohttp.ClientSession(middlewares=(limited,)) as session:
            async with session.post(server.url, data=b"a body") as response:
                assert (response.status, response.reason, response.ok) == (429, "Too Many Requests", False)
                assert [part async for part in response.content.iter_any()] != []
                with pytest.raises(aiohttp.ClientResponseError, match="429"):
                    response.raise_for_status()
            with pytest.raises(aiohttp.ClientResponseError) as refused:
                await session.get(server.url, raise_for_status=True)
            assert refused.value.status == 429
            assert refused.value.headers is not None
            assert refused.value.headers["x-batchlimit"] == "not sent"

    awaited(main)
    assert server.asked == []
