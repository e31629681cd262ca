"""What a RateLimiter hands out: the limiter of one key, for hot loops, and a limit around a block or function."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from batchlimit.base.decision import Decision
from batchlimit.base.key import place_of, stored
from batchlimit.base.redaction import shown
from batchlimit.base.waiting import deadline
from batchlimit.keyspace.reservation import OnError, Reservation
from batchlimit.quota.template import TemplateLimit, is_coroutine_function, the_function
from batchlimit.reservoir.tokens import ONE
from batchlimit.sync.key_entry import KeyEntry

if TYPE_CHECKING:
    from batchlimit.sync.limiter import RateLimiter

P = ParamSpec("P")
R = TypeVar("R")


class KeyHandle:
    """A limiter's methods for one key, which is looked up once; `RateLimiter.bucket` makes it.

    Keep it as long as you like, share it between threads, and use it in a forked child.

    Example:
        >>> from batchlimit import RateLimiter
        >>> ann = RateLimiter.from_url("memory://", "2/hour").bucket("ann")
        >>> [ann.try_acquire() for _ in range(3)]
        [True, True, False]
    """

    __slots__ = ("_clock", "_entry", "_limiter", "_place", "key")

    def __init__(self, limiter: "RateLimiter", key: str) -> None:
        self.key, self._place = key, place_of(stored(key))
        self._limiter, self._clock = limiter, limiter._clock
        self._entry: KeyEntry | None = None

    def __repr__(self) -> str:
        return f"<Bucket {shown(self.key)} of {self._limiter!r}>"

    def try_acquire(self, cost: int = 1) -> bool:
        """Admit the call or not, now."""
        entry = self._entry
        if cost is ONE and entry is not None:
            for before in entry.tokens.lock_free:
                if self._clock() < before:
                    return True
                entry.took_late(cost)
                break
            else:
                if self._clock() < entry.tokens.denied_until:
                    entry.tokens.refused += 1
                    return False
        admitted = self._limiter.try_acquire(self.key, cost)
        if self._limiter._clock is self._clock:  # else a test has put the limiter into another time
            self._entry = self._limiter._entries.get(self._place)
        return admitted

    def acquire(self, cost: int = 1, *, timeout: float | None = None, priority: int = 1) -> None:
        """Wait until the call is admitted."""
        self._limiter.acquire(self.key, cost, timeout=timeout, priority=priority)

    def decide(self, cost: int = 1) -> Decision:
        """Admit the call or not, and say what a caller wants to be told."""
        return self._limiter.decide(self.key, cost)

    def peek(self) -> Decision:
        """Say how the next call of cost 1 would fare. Nothing is charged."""
        return self._limiter.peek(self.key)

    def refund(self, cost: int = 1) -> None:
        """Take back a call that was admitted and did not happen, once."""
        self._limiter.refund(self.key, cost)

    def pause(self, seconds: float, *, why: str = "") -> None:
        """Have nobody admitted for a time, by any process."""
        self._limiter.pause(self.key, seconds, why=why)

    def resume(self) -> bool:
        """End the pause, for all processes."""
        return self._limiter.resume(self.key)

    def reserve(
        self, cost: int, *, timeout: float | None = None, priority: int = 1, on_error: OnError = "keep"
    ) -> Reservation:
        """Charge an estimate now, and settle later what it really was."""
        return self._limiter.reserve(self.key, cost, timeout=timeout, priority=priority, on_error=on_error)


class Limit(TemplateLimit):
    """What `RateLimiter.limit` returns: a decorator and a context manager, to be used as often as one likes.

    Example:
        >>> from batchlimit import RateLimiter
        >>> limiter = RateLimiter.from_url("memory://", "2/hour")
        >>> with limiter.limit("reports"):
        ...     "report"
        'report'
    """

    __slots__ = ()
    _limiter: "RateLimiter"

    def __call__(self, *given: Callable[P, R], **named: object) -> Callable[P, R]:
        """Return the function, whose calls wait until they are admitted; those of a coroutine function are awaited.

        TypeError for an asynchronous generator, and for anything but one function.
        """
        function = the_function(given, named)
        if is_coroutine_function(function):
            return self._awaiting(function, self._acquire_in_loop)
        charged = self._template.of(function)

        @functools.wraps(function)
        def limited(*args: P.args, **kwargs: P.kwargs) -> R:
            key, cost = charged(*args, **kwargs)
            self._limiter.acquire(key, cost, timeout=self._timeout)
            return function(*args, **kwargs)

        return limited

    async def _acquire_in_loop(self, key: str, cost: int) -> None:
        await self._limiter._acquire_in_loop(key, cost, deadline(self._timeout, self._limiter._clock()))

    def __enter__(self) -> None:
        key, cost = self._template.alone()
        self._limiter.acquire(key, cost, timeout=self._timeout)

    def __exit__(self, *_: object) -> None:
        """Do nothing: an admitted call stays charged, however its block ended."""
