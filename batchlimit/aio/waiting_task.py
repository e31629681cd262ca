"""A task that wants tokens, and what wakes it."""

import asyncio
import math
from collections.abc import Callable
from typing import Protocol

from batchlimit.aio.home import Home
from batchlimit.redaction import shown
from batchlimit.reservoir.waiter import Admit, Fail, Refuse, Retired, Waiter


class Steps(Protocol):
    """The key entry that a caller is at."""

    key: str
    home: Home

    def step(self, caller: "WaitingTask") -> None:
        """Do what the caller is to do next, in its place."""
        ...


class WaitingTask:
    """A task in the queue, or about to join it. The key entry decides for it: it wakes for its verdict alone."""

    __slots__ = ("_entry", "_error", "_woken", "due", "has_left", "waited", "waiter")

    def __init__(self, entry: Steps, cost: int, deadline: float, *, prompt: bool = False) -> None:
        """See Waiter for `prompt`."""
        self.waiter = Waiter(cost, deadline, self, tentative=True, prompt=prompt)  # it may be cancelled before it wakes
        self.waited = self.has_left = False
        self.due = math.inf  # when its key entry looks after it, if nothing happens before
        self._entry = entry
        self._woken: asyncio.Future[None] | None = None
        self._error: Exception | None = None

    def __repr__(self) -> str:
        return f"<WaitingTask at {shown(self._entry.key)}: {self.waiter}>"

    def set(self) -> None:
        """Hear that there is something to learn."""
        if self.waiter.verdict is not None:
            self.wake()
        elif not self.has_left:
            self._entry.home.step(self._look)

    def _look(self) -> None:
        if self.waiter.verdict is None and not self.has_left:
            self._entry.step(self)

    def ring(self) -> None:
        """Hear that the time has come."""
        self.set()

    def fail(self, error: Exception) -> None:
        """Have the task raise this, and leave."""
        self.has_left = True
        self._error = error
        self.wake()

    def wake(self) -> None:
        """Have the task look for itself."""
        self.due = math.inf
        if (woken := self._woken) is not None:
            self._woken = None  # it wakes once, however often it is told to
            self._entry.home.wake(woken)

    async def verdict(self, clock: Callable[[], float]) -> Admit | Refuse | Retired:
        """Wait until there is one; raises what went wrong. The only place where a caller can be cancelled."""
        while True:
            if self._error is not None:
                raise self._error
            match self.waiter.verdict:
                case Admit(before) as verdict if clock() < before:
                    return verdict
                case Admit():
                    # Too late: back to its place in the queue. Its tokens are lost though nobody used them. But from
                    # the end of its lease on the bucket takes them for spent and fills up again; a process that was
                    # stopped with a thousand served tasks would admit those on top of a whole burst.
                    self._entry.step(self)
                case Refuse() | Retired() as verdict:
                    return verdict
                case Fail() as verdict:
                    raise verdict.to_raise(self._entry.key)
                case None:
                    self.waited = True
                    woken = self._woken = asyncio.get_running_loop().create_future()
                    await woken
