"""What an AsyncRateLimiter hands out: the limiter of one key, for hot loops, and a limit around a block or function."""

from collections.abc import Callable, Coroutine
from threading import get_ident
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from batchlimit.aio.awaitable import Answer
from batchlimit.aio.key_entry import KeyEntry
from batchlimit.base.decision import Decision
from batchlimit.base.key import place_of, stored
from batchlimit.base.redaction import shown
from batchlimit.keyspace.reservation import AsyncReservation, OnError
from batchlimit.quota.template import TemplateLimit, is_coroutine_function
from batchlimit.reservoir.tokens import ONE

if TYPE_CHECKING:
    from batchlimit.aio.limiter import AsyncRateLimiter

P = ParamSpec("P")
R = TypeVar("R")


class AsyncKeyHandle:
    """A limiter's methods for one key, which is looked up once; `AsyncRateLimiter.bucket` makes it.

    Keep it as long as you like, on every loop and in every process that its limiter is used in.

    Example:
        >>> from batchlimit import AsyncRateLimiter
        >>> async with AsyncRateLimiter.from_url("memory://", "2/hour") as limiter:
        ...     ann = limiter.bucket("ann")
        ...     [await ann.try_acquire() for _ in range(3)]
        [True, True, False]
    """

    __slots__ = ("_clock", "_entry", "_limiter", "_place", "_registry", "key")

    def __init__(self, limiter: "AsyncRateLimiter", key: str) -> None:
        self.key, self._place = key, place_of(stored(key))
        self._limiter, self._clock, self._registry = limiter, limiter._clock, limiter._registry
        self._entry: KeyEntry | None = None

    def __repr__(self) -> str:
        return f"<AsyncBucket {shown(self.key)} of {self._limiter!r}>"

    def try_acquire(self, cost: int = 1) -> Answer[bool]:
        """Admit the call or not, now."""
        entry, registry = self._entry, self._registry
        if cost is ONE and entry is not None and registry.thread == get_ident():
            for before in entry.tokens.lock_free:
                if self._clock() < before:
                    return registry.yes
                entry.tokens.took_late(cost)
                break
            else:
                if self._clock() < entry.tokens.denied_until:
                    entry.tokens.refused += 1
                    return registry.no
        if self._limiter._clock is self._clock:  # else a test has put the limiter into another time
            self._entry = self._limiter._entries.get(self._place)  # the one in use now, if there is one
        return self._limiter.try_acquire(self.key, cost)

    async def acquire(self, cost: int = 1, *, timeout: float | None = None, priority: int = 1) -> None:
        """Wait until the call is admitted."""
        await self._limiter.acquire(self.key, cost, timeout=timeout, priority=priority)

    def decide(self, cost: int = 1) -> Answer[Decision]:
        """Admit the call or not, and say what a caller wants to be told."""
        return self._limiter.decide(self.key, cost)

    def peek(self) -> Answer[Decision]:
        """Say how the next call of cost 1 would fare. Nothing is charged."""
        return self._limiter.peek(self.key)

    async def refund(self, cost: int = 1) -> None:
        """Take back a call that was admitted and did not happen, once."""
        await self._limiter.refund(self.key, cost)

    async def pause(self, seconds: float, *, why: str = "") -> None:
        """Have nobody admitted for a time, by any process."""
        await self._limiter.pause(self.key, seconds, why=why)

    async def resume(self) -> bool:
        """End the pause, for all processes."""
        return await self._limiter.resume(self.key)

    def reserve(
        self, cost: int, *, timeout: float | None = None, priority: int = 1, on_error: OnError = "keep"
    ) -> AsyncReservation:
        """Charge an estimate now, and settle later what it really was."""
        return self._limiter.reserve(self.key, cost, timeout=timeout, priority=priority, on_error=on_error)


class AsyncLimit(TemplateLimit):
    """What `AsyncRateLimiter.limit` returns: a decorator and a context manager, to be used as often as one likes.

    Example:
        >>> import asyncio
        >>> from batchlimit import AsyncRateLimiter
        >>> async def main():
        ...     async with AsyncRateLimiter.from_url("memory://", "2/hour") as limiter:
        ...         async with limiter.limit("reports"):
        ...             return "report"
        >>> asyncio.run(main())
        'report'
    """

    __slots__ = ()
    _limiter: "AsyncRateLimiter"

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        """Return the coroutine function, whose calls wait until they are admitted; TypeError for any other function."""
        if not is_coroutine_function(function):
            raise TypeError(f"an AsyncRateLimiter limits coroutine functions, not {function!r}: use a RateLimiter")
        return self._awaiting(function, lambda key, cost: self._limiter.acquire(key, cost, timeout=self._timeout))

    async def __aenter__(self) -> None:
        key, cost = self._template.alone()
        await self._limiter.acquire(key, cost, timeout=self._timeout)

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: an admitted call stays charged, however its block ended."""
