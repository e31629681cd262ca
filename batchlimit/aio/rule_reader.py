"""Reads the overrides for an AsyncRateLimiter, in a task, when an answer of the store told of another revision."""

import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from batchlimit.errors import StoreUnavailable
from batchlimit.events import log_event
from batchlimit.quota.overrides.known import OverridesCache
from batchlimit.quota.overrides.override import Lost, NotUnderstood
from batchlimit.stores.protocols import AsyncRuleStore

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
