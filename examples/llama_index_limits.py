"""Models of LlamaIndex that share limits of requests and tokens over the whole fleet, with Redis at REDIS_URL."""

import os

from llama_index.core.rate_limiter import BaseRateLimiter

from batchlimit import AsyncRateLimiter, RateLimiter

STORE = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
QUOTAS = {"*:requests": "500/minute burst 20", "*:tokens": "100_000/minute"}


class FleetRateLimiter(BaseRateLimiter):
    """Waits for a request and its tokens, both or none: `OpenAI(..., rate_limiter=FleetRateLimiter("openai"))`."""

    def __init__(self, name: str, quotas: dict[str, str] = QUOTAS, timeout: float | None = 60.0) -> None:
        self._name, self._timeout = name, timeout
        self._threads = RateLimiter.from_url(STORE, quotas)
        self._tasks = AsyncRateLimiter.from_url(STORE, quotas)

    def acquire(self, num_tokens: int = 0) -> None:
        """Wait for a request and its tokens; Unfit if they never fit, RateLimited after the timeout."""
        self._threads.reserve(self._costs(num_tokens), timeout=self._timeout)

    async def async_acquire(self, num_tokens: int = 0) -> None:
        """Do the same in a task."""
        await self._tasks.reserve(self._costs(num_tokens), timeout=self._timeout)

    def _costs(self, tokens: int) -> dict[str, int]:
        return {f"{self._name}:requests": 1, f"{self._name}:tokens": tokens}
