"""What stands behind each face: rules, whose buckets are read when all is closed, and the end of each response."""

import threading
from collections.abc import Awaitable, Callable
from typing import Any

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.rules import Rule, Rules
from batchlimit.stores import MemoryStore
from batchlimit.stores.memory import AsyncMemoryStore
from tests.sync.stage import Clock, until

BURST = 10
KEY = "route:{user}"
"""What routes ask for."""
OFF_KEY = "off:{user}"
"""What a route asks for that refuses everybody."""


class Behind:
    """The rules of one face, and their buckets, in which no time passes; `closing` is awaited before their end."""

    def __init__(self) -> None:
        quota = f"{BURST}/day"
        self.rules = [
            Rule("path", quota, key="path:{user}"),
            Rule("route", quota, key=KEY, match=None),
            Rule("off", "0/s", key=OFF_KEY, match=None),
            Rule("outcome", quota, key="outcome:{user}", charge=self._charge),
        ]
        self.messages = [Rule("messages", quota, key="messages:{user}")]
        self.closing = list[Callable[[], Awaitable[None]]]()
        self._clock, self._made, self._ended = Clock(), list[Any](), 0
        self._store, self._lock = MemoryStore(self._clock), threading.Lock()
        self._options: Any = {"clock": self._clock, "sizer": FixedBatch(1)}
        self._quotas = Rules([*self.rules, *self.messages]).quotas

    def make(self) -> RateLimiter:
        """Return a limiter for threads."""
        self._made.append(RateLimiter(self._store, self._quotas, **self._options))
        return self._made[-1]  # type: ignore[no-any-return]

    def make_async(self) -> AsyncRateLimiter:
        """Return a limiter for tasks."""
        self._made.append(AsyncRateLimiter(AsyncMemoryStore(self._store), self._quotas, **self._options))
        return self._made[-1]  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Close what was made, on its loop: leased tokens return."""
        for close in self.closing:
            await close()
        for each in self._made:
            if isinstance(each, AsyncRateLimiter):
                await each.close()
        self.close_of_threads()

    def close_of_threads(self) -> None:
        """Close what was made for threads."""
        for each in self._made:
            if isinstance(each, RateLimiter):
                each.close()

    def await_ends(self, statistics: Callable[[], Any]) -> None:
        """Wait until every response that was charged has ended."""
        until(lambda: self._ended == statistics().rules["outcome"].acquired)

    def tokens(self, user: str) -> dict[str, int]:
        """Return what a user was charged, by rule. All limiters are closed."""
        with RateLimiter(self._store, self._quotas, **self._options) as probe:
            names = ("path", "route", "outcome", "messages")
            return {name: BURST - probe.peek(f"{name}:{user}").remaining for name in names}

    def _charge(self, response: Any) -> bool:
        with self._lock:
            self._ended += 1
        return bool(response.status == 200)
