"""How a limiter learns of the overrides in its store: it reads them when an answer told of another revision."""

import contextlib
from collections.abc import Callable
from typing import Any

from batchlimit.base.steps import Steps
from batchlimit.errors import StoreUnavailable
from batchlimit.events import log_event
from batchlimit.quota.overrides.known import OverridesCache
from batchlimit.quota.overrides.override import Lost, NotUnderstood


class RuleReader:
    """What the limiter knows of the overrides, and the steps by which a thread or a task reads them."""

    def __init__(
        self,
        rules: Any,
        clock: Callable[[], float],
        begin: Callable[[Steps[None]], object],
        reconsider: Callable[[], object],
    ) -> None:
        """`rules` is None if the store keeps none; `begin` has steps taken; `reconsider` has all keys go by the rules.

        The caller of `begin` may hold the lock of a key. A task awaits what `reconsider` returns.
        """
        self._rules, self._clock, self._begin, self._reconsider = rules, clock, begin, reconsider
        self.known = OverridesCache(clock, self._look)

    def expire(self) -> float:
        """Let overrides end that are over; return when the next one ends."""
        if self.known.expire():
            self._reconsider()
        return self.known.next_end

    def _look(self) -> None:
        if self._rules is None:
            return
        try:
            self._begin(self.read())
        except Exception as error:  # noqa: BLE001  no thread can be had, or a task factory of the user's own raises
            self.known.fail(error)  # another answer will tell of it again

    def read(self) -> Steps[None]:
        """Read the overrides, and have all keys go by them."""
        sent, before = self._clock(), self.known.in_force
        try:
            self.known.learn((yield self._rules.read(self.known.revision)), sent)
            if self.known.in_force is not before:
                yield self._reconsider()
                revision, number = self.known.revision, len(self.known.in_force.overrides)
                message = "revision %d of the overrides is obeyed: there are %d"
                log_event("rules.changed", message, revision, number, revision=revision, overrides=number)
        except (StoreUnavailable, NotUnderstood) as error:
            if self.known.fail(error):
                message = "the overrides in the store are not used, and those known before still are: %s"
                log_event("rules.unreadable", message, error, reason=str(error))
            if isinstance(error, Lost):
                with contextlib.suppress(Exception):  # it is for people to read; this instance does not need it
                    yield self._rules.remind(self.known.in_force.overrides)
        except Exception as error:  # noqa: BLE001  a store of the user's own
            self.known.fail(error)
            log_event("rules.unreadable", "reading the overrides failed; those known before are used", error=error)
