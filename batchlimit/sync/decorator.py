"""A limit around a block, or around every call of a function."""

import functools
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from batchlimit.base.waiting import deadline
from batchlimit.quota.template import Template, is_coroutine_function, the_function

if TYPE_CHECKING:
    from batchlimit.sync.limiter import RateLimiter

P = ParamSpec("P")
R = TypeVar("R")


class Limit:
    """What `RateLimiter.limit` returns: a decorator and a context manager, to be used as often as one likes.

    Example:
        >>> from batchlimit import RateLimiter
        >>> limiter = RateLimiter.from_url("memory://", "2/hour")
        >>> with limiter.limit("reports"):
        ...     "report"
        'report'
    """

    __slots__ = ("_limiter", "_template", "_timeout")

    def __init__(self, limiter: "RateLimiter", template: Template, timeout: float | None) -> None:
        deadline(timeout, 0.0)  # a wrong one raises here, and not at each call
        self._limiter, self._template, self._timeout = limiter, template, timeout

    def __repr__(self) -> str:
        return f"<Limit by {self._template!r}>"

    def __call__(self, *given: Callable[P, R], **named: object) -> Callable[P, R]:
        """Return the function, whose calls wait until they are admitted; those of a coroutine function are awaited.

        TypeError for an asynchronous generator, and for anything but one function.
        """
        function = the_function(given, named)
        charged = self._template.of(function)
        if is_coroutine_function(function):
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
        """Do nothing: an admitted call stays charged, however its block ended."""

    def _awaiting(
        self, function: Callable[P, Awaitable[R]], charged: Callable[..., tuple[str, int]]
    ) -> Callable[P, Awaitable[R]]:
        @functools.wraps(function)
        async def limited(*args: P.args, **kwargs: P.kwargs) -> R:
            key, cost = charged(*args, **kwargs)
            await self._limiter._slow_path.acquire_in_loop(key, cost, self._timeout, 1)
            return await function(*args, **kwargs)

        return limited
