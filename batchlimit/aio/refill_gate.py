"""Where the tasks that find a key dry wait for tokens of a fetch that brings enough for many of them."""

import asyncio

from batchlimit.stores.timeouts import MANY


class RefillGate:
    """Shut while such a fetch is under way: nobody stands in line for it, and those who wait find its tokens at once.

    In line each has a waiter, is served one token, and is woken with it: with 64 tasks that took 16 us each, which was
    more than all the rest where they emptied batches of 1,000; here it takes 4.
    """

    __slots__ = ("_brings", "_is_shut", "_patience", "_room", "_timer", "_waiting")

    def __init__(self, patience: float) -> None:
        """`patience` is how long (s) anybody waits here at the most, and a fetch takes that is waited for."""
        self._patience = patience
        self._brings = 0  # tokens, by the last fetch; 0 where it was slow
        self._is_shut = False
        self._room = 0  # of what it brings, what nobody waits for yet
        self._waiting: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<RefillGate of {len(self._waiting)} with room for {self._room}>"

    @property
    def patience(self) -> float:
        """For how long (s) anybody waits here at the most, once."""
        return self._patience

    def learn(self, granted: int, seconds: float) -> None:
        """Take note of what a fetch brought, and how long that took."""
        self._brings = granted if seconds < self._patience else 0

    def shut(self) -> None:
        """A fetch begins."""
        self._is_shut, self._room = True, self._brings

    def open(self) -> None:
        """It has ended, or takes too long: let all look for themselves, in the order in which they came."""
        self._is_shut = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            if not turn.done():  # its task was cancelled
                turn.set_result(None)

    def admits(self, cost: int) -> bool:
        """Whether who wants this many waits here; else in line, where the next ask knows of it."""
        return self._is_shut and 0 < cost * MANY <= self._brings

    def turn(self, cost: int) -> "asyncio.Future[None]":
        """Return what to await until it opens, for a cost that it admits; who is cancelled just leaves.

        Who finds no room opens it: the next ask has to know of all, so they go to stand in line, in their order. (In
        line that one alone was before all who waited here, and had what they came for.)
        """
        loop = asyncio.get_running_loop()
        if self._timer is None:
            self._timer = loop.call_later(self._patience, self.open)
        if self._room >= 0 > self._room - cost:
            loop.call_soon(self.open)
        self._room -= cost
        turn = loop.create_future()
        self._waiting.append(turn)
        return turn


NO_GATE = RefillGate(0.0)
"""Of all keys whose fetches bring few: it admits nobody."""
