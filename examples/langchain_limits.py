"""Models of LangChain that share one limit over the whole fleet, with Redis at REDIS_URL."""

import os

from langchain_core.rate_limiters import BaseRateLimiter

from batchlimit import AsyncRateLimiter, RateLimiter

STORE = os.environ.get("REDIS_URL", "redis://localhost:6379/0")


class FleetRateLimiter(BaseRateLimiter):
    """Waits for a token of a key before each request: `ChatOpenAI(..., rate_limiter=FleetRateLimiter("openai"))`.

    The request counts, not its tokens: LangChain tells no more.
    """

    def __init__(self, key: str, quota: str = "500/minute burst 20", timeout: float | None = 60.0) -> None:
        self._key, self._timeout = key, timeout
        self._threads = RateLimiter.from_url(STORE, quota)
        self._tasks = AsyncRateLimiter.from_url(STORE, quota)

    def acquire(self, *, blocking: bool = True) -> bool:
        """Wait for a token; RateLimited after the timeout. Without blocking: whether there is one."""
        if not blocking:
            return self._threads.try_acquire(self._key)
        self._threads.acquire(self._key, timeout=self._timeout)
        return True

    async def aacquire(self, *, blocking: bool = True) -> bool:
        """Do the same in a task."""
        if not blocking:
            return await self._tasks.try_acquire(self._key)
        await self._tasks.acquire(self._key, timeout=self._timeout)
        return True
