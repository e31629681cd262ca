"""A limit around a block, or around every call of a coroutine function."""

import functools
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from batchlimit.base.waiting import deadline
from batchlimit.quota.template import Template, is_coroutine_function

if TYPE_CHECKING:
    from batchlimit.aio.limiter import AsyncRateLimiter

P = ParamSpec("P")
R = TypeVar("R")


class AsyncLimit:
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

    __slots__ = ("_limiter", "_template", "_timeout")

    def __init__(self, limiter: "AsyncRateLimiter", template: Template, timeout: float | None) -> None:
        deadline(timeout, 0.0)  # a wrong one raises here, and not at each call
        self._limiter, self._template, self._timeout = limiter, template, timeout

    def __repr__(self) -> str:
        return f"<AsyncLimit by {self._template!r}>"

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        """Return the coroutine function, whose calls wait until they are admitted; TypeError for any other function."""
        if not is_coroutine_function(function):
            raise TypeError(f"an AsyncRateLimiter limits coroutine functions, not {function!r}: use a RateLimiter")
        charged = self._template.of(function)

        @functools.wraps(function)
        async def limited(*args: P.args, **kwargs: P.kwargs) -> R:
            key, cost = charged(*args, **kwargs)
            await self._limiter.acquire(key, cost, timeout=self._timeout)
            result: R = await function(*args, **kwargs)
            return result

        return limited

    async def __aenter__(self) -> None:
        key, cost = self._template.alone()
        await self._limiter.acquire(key, cost, timeout=self._timeout)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: an admitted call stays charged, however its block ended."""
