"""What is behind an application in this process: its limiter, which the test can ask, and the time of its buckets."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.rules import Rule, Rules
from batchlimit.stores import MemoryStore
from batchlimit.stores.memory import AsyncMemoryStore
from tests.sync.stage import Clock


class Backing:
    """Makes the limiter of an application: on buckets in memory, in which no time passes by itself, or on a store."""

    def __init__(self, rules: Iterable[Rule], url: str = "", prefix: str = "", clock: Clock | None = None) -> None:
        self.clock, self._all, self._url, self._prefix = clock or Clock(), Rules(rules), url, prefix
        self._store, self._made = MemoryStore(self.clock), list[Any]()
        self.closing = list[Callable[[], Awaitable[None]]]()  # awaited before the end
        self._loop: Any = None

    def make(self) -> RateLimiter:
        """Return a limiter for threads."""
        return self._limiter(RateLimiter, self._store)  # type: ignore[no-any-return]

    def make_async(self) -> AsyncRateLimiter:
        """Return a limiter for tasks, on their loop."""
        self._loop = asyncio.get_running_loop()
        return self._limiter(AsyncRateLimiter, AsyncMemoryStore(self._store))  # type: ignore[no-any-return]

    def left(self, key: str) -> int:
        """Ask the limiter what is left of a key."""
        found = self._made[-1].peek(key)
        if self._loop is not None:
            found = asyncio.run_coroutine_threadsafe(found, self._loop).result()
        return int(found.remaining)

    async def close(self) -> None:
        """Close what was made, on its loop: leased tokens return. On a store they return as the application stops."""
        for close in self.closing:
            await close()
        for each in self._made:
            if isinstance(each, AsyncRateLimiter) and not self._url:
                await each.close()
        self.close_of_threads()

    def close_of_threads(self) -> None:
        """Close what was made for threads."""
        for each in self._made:
            if isinstance(each, RateLimiter):
                each.close()

    def probe(self) -> RateLimiter:
        """Return another limiter of the buckets in memory."""
        return RateLimiter(self._store, self._all.quotas, clock=self.clock, sizer=FixedBatch(1))

    def _limiter(self, kind: Any, store: Any) -> Any:
        options: Any = {"sizer": FixedBatch(1)}
        if self._url:
            options |= {"prefix": self._prefix, "deadline": 30.0, "connect_timeout": 30.0}
            made = kind.from_url(self._url, self._all.quotas, on_failure=self._all.on_failure, **options)
        else:
            made = kind(store, self._all.quotas, clock=self.clock, **options)
        self._made.append(made)
        return made
