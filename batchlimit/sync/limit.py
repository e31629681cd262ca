"""A limit around a block, or around every call of a function."""

import asyncio
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import ParamSpec, Protocol, TypeVar, cast

from batchlimit.core.template import Template

P = ParamSpec("P")
R = TypeVar("R")


class Acquires(Protocol):
    """What a limit needs of its limiter."""

    def acquire(self, key: str, cost: int = 1, *, timeout: float | None = None) -> None:
        """Wait until the call is admitted, or raise."""
        ...

    def refund(self, key: str, cost: int = 1) -> None:
        """Take back a call that was admitted and did not happen."""
        ...


class Limit:
    """What `RateLimiter.limit` returns: a decorator and a context manager, to be used as often as one likes."""

    __slots__ = ("_limiter", "_template", "_timeout")

    def __init__(self, limiter: Acquires, template: Template, timeout: float | None) -> None:
        self._limiter, self._template, self._timeout = limiter, template, timeout

    def __repr__(self) -> str:
        return f"<Limit by {self._template!r}>"

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function, whose calls wait until they are admitted; a coroutine function's wait in a thread."""
        charged = self._template.of(function)
        if inspect.iscoroutinefunction(function):
            return cast(Callable[P, R], self._awaiting(cast(Callable[P, Awaitable[object]], function), charged))

        @functools.wraps(function)
        def limited(*args: P.args, **kwargs: P.kwargs) -> R:
            key, cost = charged(*args, **kwargs)
            self._limiter.acquire(key, cost, timeout=self._timeout)
            return function(*args, **kwargs)

        return limited

    def __enter__(self) -> None:
        key, cost = self._template.alone()
        self._limiter.acquire(key, cost, timeout=self._timeout)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What was admitted has happened, however it ended."""

    def _awaiting(
        self, function: Callable[P, Awaitable[R]], charged: Callable[..., tuple[str, int]]
    ) -> Callable[P, Awaitable[R]]:
        @functools.wraps(function)
        async def limited(*args: P.args, **kwargs: P.kwargs) -> R:
            key, cost = charged(*args, **kwargs)
            await self._acquire_in_thread(key, cost)
            return await function(*args, **kwargs)

        return limited

    async def _acquire_in_thread(self, key: str, cost: int) -> None:
        """A thread cannot be cancelled: it returns what it was admitted for, if nobody waits for it any more."""
        alone = threading.Event()

        def acquire() -> None:
            self._limiter.acquire(key, cost, timeout=self._timeout)
            if alone.is_set():
                self._limiter.refund(key, cost)

        try:
            await asyncio.to_thread(acquire)
        except asyncio.CancelledError:
            alone.set()
            raise
