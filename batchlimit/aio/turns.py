"""Things that are done a few at a time, so that the event loop stays responsive however many there are."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context

AT_ONCE = 64
"""So many are done in one turn of the loop: to look after a waiter takes up to 40 us, a task that wakes 20 and more."""


class Turns:
    """Does things in the order in which they come, AT_ONCE of them in one turn of the loop; the rest in the next turns.

    A loop that is closed turns no more: what is left then is not done.
    """

    __slots__ = ("_left", "_loop", "_room")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._left: deque[Callable[[], object]] = deque()
        self._room = AT_ONCE  # how many more may be done until the next turn begins

    def __repr__(self) -> str:
        return f"<Turns with {len(self._left)} left>"

    def do(self, work: Callable[[], object]) -> None:
        """Do this now, or in a turn soon, if much was done in this one."""
        self._left.append(work)
        self._go_on()

    def _go_on(self) -> None:
        while self._left and self._room:
            if self._room == 1 and not self._loop.is_closed():  # first: who is interrupted leaves the rest to others
                self._loop.call_soon(self._begin, context=Context())
            self._room -= 1
            self._left.popleft()()

    def _begin(self) -> None:
        self._room = AT_ONCE
        self._go_on()
