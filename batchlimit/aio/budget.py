"""A time budget for something awaited, which a loop that was held up does not shorten."""

import asyncio
from types import TracebackType
from typing import Self

_ROUNDS = 3
"""How many rounds of the loop an answer has that lies ready when the time is over: it is read in the first, understood
in the next, and its task has it in the third. A loop that was blocked would else throw away what had come in time."""


class Budget:
    """`async with Budget(seconds)`: TimeoutError when they are over, as from asyncio.timeout."""

    __slots__ = ("_handle", "_loop", "_rounds", "_scope", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds, self._rounds = seconds, _ROUNDS
        self._scope = asyncio.timeout(None)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle = self._loop.call_later(self._seconds, self._over)
        await self._scope.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.cancel()
        await self._scope.__aexit__(kind, error, trace)

    def _over(self) -> None:
        self._rounds -= 1
        if self._rounds >= 0:
            self._handle = self._loop.call_soon(self._over)
        else:
            self._scope.reschedule(self._loop.time())
