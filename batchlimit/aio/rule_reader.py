"""How a limiter for tasks learns of other quotas: the overrides of the store, read by a task, and a file of limits."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from batchlimit.errors import StoreUnavailable
from batchlimit.events import log_event
from batchlimit.quota.overrides.known import OverridesCache
from batchlimit.quota.overrides.override import Lost, NotUnderstood
from batchlimit.stores.protocols import AsyncRuleStore

_PATIENCE = 5.0
"""How long (s) whoever reads a file waits for a loop that is busy."""


class FileFollower:
    """Has what a file says applied on the loop, or in the thread that tells of it while there is no loop.

    Args:
        apply: goes by what the file says now.
    """

    __slots__ = ("__weakref__", "_apply", "_is_behind", "_lock", "_loop")

    def __init__(self, apply: Callable[[], None]) -> None:
        self._apply = apply
        self._is_behind = False  # the file says something else
        self.after_fork()

    def __repr__(self) -> str:
        return f"<FileFollower{', behind' if self._is_behind else ''}>"

    def after_fork(self) -> None:
        """In the child: there is no loop yet."""
        self._lock = threading.Lock()  # held to bind to a loop, and to apply a file where there is none
        self._loop: asyncio.AbstractEventLoop | None = None

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Apply what the file says on this running loop, now and from now on."""
        with self._lock:
            self._loop = loop
        self.catch_up()

    def obey(self, said: object) -> None:
        """Apply what the file says now; the thread that calls waits until that is so, a while at most."""
        self._is_behind = True
        with self._lock:
            loop = self._loop
            if loop is None:
                self.catch_up()
                return
        if asyncio._get_running_loop() is loop:
            self.catch_up()
            return
        done = threading.Event()
        with contextlib.suppress(RuntimeError):  # the loop was closed: the next one will do it
            loop.call_soon_threadsafe(self.catch_up, done)
            done.wait(_PATIENCE)

    def catch_up(self, done: threading.Event | None = None) -> None:
        """Apply what was not applied yet; requires to be on the loop, if there is one."""
        if self._is_behind:
            try:
                self._is_behind = False  # first: the file may change meanwhile
                self._apply()
            except BaseException:
                self._is_behind = True
                raise
        if done is not None:
            done.set()


Work = Coroutine[Any, Any, None]


class AsyncRuleReader:
    """What the limiter knows of the overrides, and the task that reads them."""

    def __init__(
        self,
        rules: AsyncRuleStore | None,
        clock: Callable[[], float],
        start: Callable[[Work], object],
        reconsider: Callable[[], Work],
    ) -> None:
        """`rules` is None if the store keeps none; `start` starts a task; `reconsider` has all keys go by the rules."""
        self._rules, self._clock, self._start, self._reconsider = rules, clock, start, reconsider
        self.known = OverridesCache(clock, self._begin)

    def __repr__(self) -> str:
        return f"<AsyncRuleReader: {self.known!r}>"

    def expire(self) -> float:
        """Let overrides end that are over; return when the next one ends."""
        if self.known.expire():
            self._start(self._reconsider())
        return self.known.next_end

    def _begin(self) -> None:
        if self._rules is None:
            return
        try:
            self._start(self._read(self._rules))
        except Exception as error:  # noqa: BLE001  a task factory of the user's own
            self.known.fail(error)

    async def _read(self, rules: AsyncRuleStore) -> None:
        sent, before = self._clock(), self.known.in_force
        try:
            self.known.learn(await rules.read(self.known.revision), sent)
            if self.known.in_force is not before:
                await self._reconsider()
                self._say()
        except (StoreUnavailable, NotUnderstood) as error:
            if self.known.fail(error):
                message = "the overrides in the store are not used, and those known before still are: %s"
                log_event("rules.unreadable", message, error, reason=str(error))
            if isinstance(error, Lost):
                with contextlib.suppress(Exception):  # people are told; this instance does not need it
                    await rules.remind(self.known.in_force.overrides)
        except Exception as error:  # noqa: BLE001  a store of the user's own
            self.known.fail(error)
            log_event("rules.unreadable", "reading the overrides failed; those known before are used", error=error)

    def _say(self) -> None:
        overrides = self.known.in_force.overrides
        revision, number = overrides.revision, len(overrides)
        message = "revision %d of the overrides is obeyed: there are %d"
        log_event("rules.changed", message, revision, number, revision=revision, overrides=number)
