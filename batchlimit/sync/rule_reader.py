"""Reads the overrides for a RateLimiter, in a thread, when an answer of the store told of another revision."""

import contextlib
import threading
from collections.abc import Callable

from batchlimit.errors import StoreUnavailable
from batchlimit.events import log_event
from batchlimit.quota.overrides.known import OverridesCache
from batchlimit.quota.overrides.override import Lost, NotUnderstood
from batchlimit.stores.protocols import RuleStore


class RuleReader:
    """What the limiter knows of the overrides, and the thread that reads them; there is one only while it reads."""

    def __init__(self, rules: RuleStore | None, clock: Callable[[], float], reconsider: Callable[[], None]) -> None:
        """`rules` is None if the store keeps none; `reconsider` has all keys go by what is known now."""
        self._rules, self._clock, self._reconsider = rules, clock, reconsider
        self.known = OverridesCache(clock, self._begin)

    def __repr__(self) -> str:
        return f"<RuleReader: {self.known!r}>"

    def expire(self) -> float:
        """Let overrides end that are over; return when the next one ends."""
        if self.known.expire():
            self._reconsider()
        return self.known.next_end

    def _begin(self) -> None:
        """Start to read; the caller may hold the lock of a key."""
        if self._rules is None:
            return
        try:
            threading.Thread(target=self._read, name="batchlimit-rules", daemon=True).start()
        except RuntimeError as error:  # no thread can be had: another answer will tell of it again
            self.known.fail(error)

    def _read(self) -> None:
        assert self._rules is not None
        sent, before = self._clock(), self.known.in_force
        try:
            self.known.learn(self._rules.read(self.known.revision), sent)
            if self.known.in_force is not before:
                self._reconsider()
                self._say()
        except (StoreUnavailable, NotUnderstood) as error:
            if self.known.fail(error):
                message = "the overrides in the store are not used, and those known before still are: %s"
                log_event("rules.unreadable", message, error, reason=str(error))
            if isinstance(error, Lost):
                with contextlib.suppress(Exception):  # it is for people to read; this instance does not need it
                    self._rules.remind(self.known.in_force.overrides)
        except Exception as error:  # noqa: BLE001  a store of the user's own
            self.known.fail(error)
            log_event("rules.unreadable", "reading the overrides failed; those known before are used", error=error)

    def _say(self) -> None:
        overrides = self.known.in_force.overrides
        revision, number = overrides.revision, len(overrides)
        message = "revision %d of the overrides is obeyed: there are %d"
        log_event("rules.changed", message, revision, number, revision=revision, overrides=number)
