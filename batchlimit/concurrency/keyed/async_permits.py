"""Several permits of one task, entered and completed together."""

from collections.abc import Callable, Generator
from types import TracebackType
from typing import Self

from batchlimit.concurrency.async_permit import AsyncPermit
from batchlimit.concurrency.keyed.gates import KeyedGates
from batchlimit.concurrency.keyed.turns import Turns

_SECOND = 1_000_000_000


class AsyncPermits:
    """Leave for one task to be under way at several keys: the context of an `async with` block, or to be awaited.

    The task enters at `async with` or `await`, no sooner. The end of the block completes all permits, and so do
    `success`, `drop` and `ignore`, as those of Permit.

    Raises:
        ConcurrencyLimited: The call was refused where it would enter; `key` says which key had no room.
        LimiterClosed: The limiter was closed.
        RuntimeError: It was entered twice.

    Example:
        >>> import asyncio
        >>> from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter
        >>> async def main() -> tuple[str, ...]:
        ...     async with AsyncKeyedConcurrencyLimiter({"user:*": 2, "all": 100}) as limiter:
        ...         async with limiter.acquire_all(["all", "user:ann"]) as permits:
        ...             return permits.keys
        >>> asyncio.run(main())
        ('user:ann', 'all')
    """

    __slots__ = ("_gates", "_operation", "_permits", "_priority", "_seconds", "_turns")

    def __init__(self, gates: KeyedGates, turns: Turns, seconds: float, operation: str, priority: int) -> None:
        self._gates, self._turns, self._seconds, self._operation = gates, turns, seconds, operation
        self._priority = priority
        self._permits: list[AsyncPermit] | None = None

    def __repr__(self) -> str:
        return f"<AsyncPermits of {len(self.keys)} keys: {'not entered' if self._permits is None else 'entered'}>"

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys, in the order in which they were acquired, or will be."""
        return self._turns.order()

    def success(self) -> None:
        """Complete all permits: the call was served."""
        self._complete(AsyncPermit.success)

    def drop(self) -> None:
        """Complete all permits: load made the call fail."""
        self._complete(AsyncPermit.drop)

    def ignore(self) -> None:
        """Complete all permits: the call tells nothing about the load."""
        self._complete(AsyncPermit.ignore)

    def __await__(self) -> Generator[object, None, Self]:
        return self._enter().__await__()

    async def __aenter__(self) -> Self:
        return self if self._permits else await self._enter()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def __enter__(self) -> Self:
        if not self._permits:
            raise RuntimeError(f"{self!r} was not awaited: write `async with`")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for permit in self._permits or ():
            permit.__exit__(kind, error, trace)

    async def _enter(self) -> Self:
        if self._permits is not None:
            raise RuntimeError(f"{self!r} was awaited before")
        self._permits = []
        until = self._gates.clock() + self._seconds * _SECOND
        while not await self._round(self._permits, until):
            pass
        return self

    async def _round(self, held: list[AsyncPermit], until: float) -> bool:
        """Acquire every key; False, with nothing held, if one had no room where this round does not wait."""
        turns, gates = self._turns, self._gates
        try:
            for key in turns.order():
                gate = gates.by_key.get(key) or gates.find(key)
                permit = AsyncPermit(gate, self._operation, self._priority, False)
                permit._partition = ""
                if reason := gate.enter(permit, ""):
                    if not turns.may_wait(key):
                        turns.turned_away(key)
                        _give_back(held)
                        return False
                    permit._timeout = max(0.0, (until - gates.clock()) / _SECOND)
                    await permit._wait(reason)
                held.append(permit)
        except BaseException:
            _give_back(held)
            raise
        now = gates.clock()
        for permit in held:
            permit.start_ns = now  # a law is not told how long this task waited for the last key
        return True

    def _complete(self, how: Callable[[AsyncPermit], None]) -> None:
        if not self._permits:
            raise RuntimeError(f"{self!r} cannot be completed: nobody entered it; was it awaited?")
        for permit in self._permits:
            how(permit)


def _give_back(held: list[AsyncPermit]) -> None:
    while held:
        held.pop().ignore()
