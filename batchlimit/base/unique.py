"""What there is once, in one process: it is not pickled, and the testing kit finds it."""

import weakref
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn, Self


class Unique:
    """Is neither pickled nor copied: two of what holds tokens would spend them twice."""

    __slots__ = ()
    _instead: ClassVar[str] = "make one in each process, from the same URL"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} belongs to its process, and is not pickled or copied: {self._instead}"
        )


class Closing:
    """Is the context of a `with` block, whose end closes it."""

    __slots__ = ()

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClosing:
    """Is the context of an `async with` block, whose end closes it."""

    __slots__ = ()

    async def close(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


live_limiters: weakref.WeakSet[Any] = weakref.WeakSet()
"""Every rate limiter of this process, of both APIs, and every Admin."""
adopters: list[Callable[[Any], None]] = []
"""Each is called with every one that is made; empty outside of tests."""


def register(thing: Any) -> None:
    """Note that a limiter or an Admin was made."""
    live_limiters.add(thing)
    for adopt in adopters:
        adopt(thing)
