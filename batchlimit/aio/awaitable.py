"""What an AsyncRateLimiter answers: something to await, whose truth value is an error.

`if limiter.try_acquire(key):` without its `await` would admit every call, for an object is true. Here it raises, and so
does `limiter.decide(key).allowed`.
"""

import asyncio
import sys
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Never, TypeVar

T = TypeVar("T")
_UNAWAITED = "this answer of an AsyncRateLimiter was not awaited: write `await` before the call"
_ASYNCIO = "asyncio.base_tasks"
"""From Python 3.12 on, a task that is shown in a log, or asked for its `repr`, asks whether its coroutine is true."""


class Answer(Coroutine[Any, Any, T]):
    """What an AsyncRateLimiter answers: await it, once, or make a task of it.

    It is a coroutine in all but its truth value, which is an error: a forgotten `await` would admit every call.

    Example:
        >>> import asyncio
        >>> from batchlimit import AsyncRateLimiter
        >>> async def main():
        ...     async with AsyncRateLimiter.from_url("memory://", "2/hour") as limiter:
        ...         if limiter.try_acquire("ann"):
        ...             return "admitted"
        >>> asyncio.run(main())
        Traceback (most recent call last):
        ...
        TypeError: this answer of an AsyncRateLimiter was not awaited: write `await` before the call
    """

    __slots__ = ()

    def __bool__(self) -> Literal[True]:
        if sys._getframe(1).f_globals.get("__name__") == _ASYNCIO:
            return True
        raise TypeError(_UNAWAITED)

    if not TYPE_CHECKING:  # or it would look as if it had all attributes

        def __getattr__(self, name: str) -> Never:
            raise AttributeError(f"no {name!r}: {_UNAWAITED}", name=name, obj=self)


class Pending(Answer[T]):
    """An answer that somebody has to work for: whoever awaits it."""

    __slots__ = ("_work",)

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work

    def __repr__(self) -> str:
        return f"<Pending {self._work!r}>"

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()

    def send(self, value: Any, /) -> Any:
        """As of a coroutine."""
        return self._work.send(value)

    def throw(self, kind: Any, value: Any = None, trace: TracebackType | None = None, /) -> Any:
        """As of a coroutine."""
        return self._work.throw(kind if value is None else value)

    def close(self) -> None:
        """As of a coroutine."""
        self._work.close()


class ImmediateAnswer(asyncio.Future[T], Answer[T]):
    """An answer that is there already, the same for all who get it.

    A done future, for awaiting one runs no Python: 48 ns, where a generator of our own took 100, and the coroutine of
    an `async def` 75. That `send` makes it a coroutine is for those who make a task of it.
    """

    _asyncio_future_blocking = None  # type: ignore[assignment]  # no future to asyncio, whose `wait` takes no coroutine

    def __init__(self, answer: T, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self.set_result(answer)

    def send(self, value: Any, /) -> Never:
        """End at once, as a coroutine does that awaits nothing."""
        raise StopIteration(self.result())

    def throw(self, kind: Any, value: Any = None, trace: TracebackType | None = None, /) -> Never:
        """Let the error pass."""
        raise kind if value is None else value

    def close(self) -> None:
        """Nothing is under way."""
