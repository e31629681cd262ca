"""Agents of Pydantic AI of which so many run at once in the whole fleet, with Redis at REDIS_URL."""

import os

from pydantic_ai.concurrency import AbstractConcurrencyLimiter

from batchlimit.shared import AsyncSharedConcurrencyLimiter
from batchlimit.shared.permit import AsyncSharedPermit

STORE = os.environ.get("REDIS_URL", "redis://localhost:6379/0")


class FleetConcurrency(AbstractConcurrencyLimiter):
    """Seats of a key: `Agent(..., max_concurrency=FleetConcurrency("gpt", 10))`.

    A seat is given back wherever its stream is closed, maybe in another task: which of them it was does not matter.
    """

    def __init__(self, key: str, most: int, timeout: float | None = None) -> None:
        self._key, self._timeout = key, timeout
        self._limiter = AsyncSharedConcurrencyLimiter.from_url(STORE, {key: most})
        self._held: list[AsyncSharedPermit] = []

    async def acquire(self, source: str) -> None:
        """Wait for a seat; ConcurrencyLimited after the timeout."""
        self._held.append(await self._limiter.acquire(self._key, timeout=self._timeout))

    def release(self) -> None:
        """Give a seat back."""
        self._held.pop().release()

    async def close(self) -> None:
        """Close the limiter."""
        await self._limiter.close()
