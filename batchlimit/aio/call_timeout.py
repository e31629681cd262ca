"""A time budget for a call of a store, which a loop that was held up does not shorten, nor a connection to be made."""

import asyncio
from collections.abc import Callable
from contextvars import Token
from typing import Any, Self

from batchlimit.stores.client.deadline import WATCH

_ROUNDS = 10
"""Rounds of the event loop that a call still gets when its time is over. A loop that was blocked has not yet read an
answer that came in time: one round reads it, the next parses it, and the third wakes its task. Finding a connection and
sending took some rounds before. An idle loop spends no time on them."""


_TICK = 1e-6  # what is left of a sum that ought to be 0


class Countdown:
    """Calls `over` when the seconds are over, and so are those rounds; unless it is stopped before.

    One of 0 seconds has the rounds alone: a call that has ended by then does not need to stop it.
    """

    __slots__ = ("_handle", "_loop", "_over", "_rounds")

    def __init__(self, seconds: float, over: Callable[[], object]) -> None:
        self._over, self._rounds = over, _ROUNDS
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle = self._loop.call_later(seconds, self._run_out)

    def stop(self) -> None:
        """Let it be."""
        self._handle.cancel()

    def _run_out(self) -> None:
        self._rounds -= 1
        if self._rounds >= 0:
            self._handle = self._loop.call_soon(self._run_out)
        else:
            self._over()


def _never() -> bool:
    return False


class CallTimeout:
    """`async with CallTimeout(seconds)`: TimeoutError when they are over, as from asyncio.timeout.

    The time during which the call waits for a connection does not count (see stores/client/deadline.py), but for
    `connecting` seconds, or as soon as the store is `failing`: asked each `seconds`.
    """

    __slots__ = ("_connecting", "_countdown", "_failing", "_left", "_scope", "_seconds", "_token")

    def __init__(self, seconds: float, connecting: float = 0.0, failing: Callable[[], bool] = _never) -> None:
        self._seconds, self._connecting, self._failing = seconds, connecting, failing
        self._left = 0.0  # for how long yet it may wait for a connection
        self._scope = asyncio.timeout(None)

    async def __aenter__(self) -> Self:
        self._token: Token[Any] = WATCH.set(self)
        self._wind()
        await self._scope.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._countdown.stop()
        WATCH.reset(self._token)
        await self._scope.__aexit__(*error)

    def pause(self) -> None:
        """Let the call wait for a connection, or open one."""
        self._left = self._connecting
        self._countdown.stop()
        self._wind()

    def resume(self) -> None:
        """From here on the time is the server's."""
        self._left = 0.0
        self._countdown.stop()
        self._wind()

    def _wind(self) -> None:
        self._countdown = Countdown(self._seconds, self._over)

    def _over(self) -> None:
        self._left -= self._seconds
        if self._left > _TICK and not self._failing():
            self._wind()
        else:
            self._scope.reschedule(asyncio.get_running_loop().time())
