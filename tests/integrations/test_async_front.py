"""What becomes of a charge that has to be awaited, of a front on an event loop."""

import asyncio

import pytest

from batchlimit import AsyncRateLimiter
from batchlimit.integrations.async_front import AsyncFront
from batchlimit.integrations.enforcement import Outcome, Response
from batchlimit.rules import Rule, Rules


class Charging:
    """A front whose rule is charged by what is awaited, and whose limiter notes that it is closed."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.may_charge = asyncio.Event()
        self.rules = Rules([Rule("all", "9/hour", key="all", charge=self._charge)])
        self.front = AsyncFront(self._limiter, self.rules)

    async def admitted(self) -> Outcome:
        return await self.front.admit("GET", "/", None, [])

    def _limiter(self) -> AsyncRateLimiter:
        notes = self.notes

        class Noting(AsyncRateLimiter):
            async def close(self) -> None:
                notes.append("closed")
                await super().close()

        return Noting.from_url("memory://", self.rules.quotas)

    async def _charge(self, response: Response) -> bool:
        await self.may_charge.wait()
        self.notes.append("charged")
        return True


def test_a_front_is_closed_after_what_it_settles() -> None:
    async def test() -> list[str]:
        charging = Charging()
        charging.front.settle(await charging.admitted(), Response(200))
        asyncio.get_running_loop().call_soon(charging.may_charge.set)
        await charging.front.close()
        return charging.notes

    assert asyncio.run(test()) == ["charged", "closed"]


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # indeed
def test_a_request_that_ends_after_its_loop_is_no_error() -> None:
    charging = Charging()
    charging.front.settle(asyncio.run(charging.admitted()), Response(200))
    assert charging.notes == []
