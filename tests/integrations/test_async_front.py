"""What becomes of a charge that has to be awaited, of a front on an event loop."""

import asyncio
from typing import Any

import pytest

from batchlimit import AsyncRateLimiter
from batchlimit.integrations.asgi import RateLimitMiddleware
from batchlimit.integrations.enforcement import Outcome, Response
from batchlimit.integrations.front import AsyncFront
from batchlimit.rules import Rule, Rules


class Charging:
    """A front whose rule is charged by what is awaited, and whose limiter notes that it is closed."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.charges, self.may_charge = asyncio.Event(), asyncio.Event()
        self.rules = Rules([Rule("all", "9/hour", key="all", charge=self._charge)])
        self.front = AsyncFront(self.limiter, self.rules)

    async def admitted(self) -> Outcome:
        return await self.front.admit("GET", "/", None, [])

    def limiter(self) -> AsyncRateLimiter:
        notes = self.notes

        class Noting(AsyncRateLimiter):
            async def close(self) -> None:
                notes.append("closed")
                await super().close()

        return Noting.from_url("memory://", self.rules.quotas)

    async def _charge(self, response: Response) -> bool:
        self.charges.set()
        await self.may_charge.wait()
        self.notes.append("charged")
        return True


async def answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def nothing() -> Any:
    await asyncio.Event().wait()


async def swallow(message: Any) -> None:
    pass


def test_a_front_is_closed_after_what_it_settles() -> None:
    async def test() -> list[str]:
        charging = Charging()
        charging.front.settle(await charging.admitted(), Response(200))
        asyncio.get_running_loop().call_soon(charging.may_charge.set)
        await charging.front.close()
        return charging.notes

    assert asyncio.run(test()) == ["charged", "closed"]


def test_a_middleware_is_closed_after_what_it_settles_for_a_request_that_was_cancelled() -> None:
    async def test() -> list[str]:
        charging = Charging()
        middleware = RateLimitMiddleware(answer, limiter=charging.limiter, rules=charging.rules)
        scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": ("192.0.2.1", 1)}
        request = asyncio.ensure_future(middleware(scope, nothing, swallow))
        await charging.charges.wait()
        request.cancel()
        await asyncio.wait([request])
        asyncio.get_running_loop().call_soon(charging.may_charge.set)
        await middleware.close()
        return charging.notes

    assert asyncio.run(test()) == ["charged", "closed"]


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # indeed
def test_a_request_that_ends_after_its_loop_is_no_error() -> None:
    charging = Charging()
    charging.front.settle(asyncio.run(charging.admitted()), Response(200))
    assert charging.notes == []
