"""The law of a locked gate, as far as something else than the end of a call changes its limit."""

import logging
import time
from collections.abc import Callable, Sequence

from batchlimit.concurrency.critical_section import CriticalSection
from batchlimit.concurrency.law import Calibrated, Law, state_of
from batchlimit.concurrency.laws.aimd import Watched
from batchlimit.concurrency.laws.fixed import Settable
from batchlimit.concurrency.laws.knee.knee import Knee
from batchlimit.concurrency.queue import GateWaiter
from batchlimit.concurrency.watchers.watcher import Watcher
from batchlimit.events import log_event

Changed = Callable[..., object]
"""Called when the limit has changed, with the limit before and after; and why, where that is asked for."""


def checked(limit: int) -> int:
    """Return a limit that a law gave, raised to 1 if it is lower; TypeError if it is no whole number."""
    if limit.__class__ is not int:
        raise TypeError(f"a law must give a whole number of calls, not {limit!r}")
    return limit if limit > 0 else 1


def by_time_of_day(law: Law, clock: Callable[[], int]) -> Law:
    """Have the drains of a law coincide with those of limiters on other machines; only a real clock can tell when."""
    if isinstance(law, Knee) and clock is time.monotonic_ns:
        law._share_time(time.time_ns() - time.monotonic_ns())
    return law


def calibrated(law: Law) -> Law:
    """Have a law learn what watchers saw: one that is not Calibrated, as a dropped call."""
    return law if isinstance(law, Calibrated) else Watched(law)


class LimitControl:
    """Sets the limit of a gate: when a call ended, somebody set that of its law, or the watchers end a period."""

    __slots__ = ("_has_failed", "_listeners", "_section", "law")

    def __init__(self, section: CriticalSection, law: Law, watchers: Sequence[Watcher]) -> None:
        self._section = section
        self.law = calibrated(law) if watchers else law
        self._has_failed = False
        self._listeners: tuple[tuple[Changed, bool], ...] = ()
        if isinstance(setting := law.law if isinstance(law, Watched) else law, Settable):
            setting.listen(lambda: self._resize(lambda now: self.law.limit, "operator"))

    def listen(self, changed: Changed, why: bool) -> None:
        """Call a function after each change of the limit, without the lock; with the reason, if it asks why."""
        with self._section.lock:
            self._listeners += ((changed, why),)

    def take_over(self, limit: int, now: int, why: str = "", *, dropped: bool = False) -> Sequence[GateWaiter]:
        """Set a limit that the law gave; return the waiters that were served. Requires the lock.

        Why is what the law says; or what the call says that it learnt from, which may have been `dropped`.
        """
        gate, limit = self._section.gate, checked(limit)
        if (before := gate.limit) == limit:
            return ()
        why = why or state_of(self.law).why or ("room" if limit > before else "loss" if dropped else "late")
        served = gate.resize(limit, now, why)
        if listeners := self._listeners:
            self._section.deferred.append(lambda: self._tell(listeners, before, limit, why))
        return served

    @staticmethod
    def _tell(listeners: Sequence[tuple[Changed, bool]], before: int, after: int, why: str) -> None:
        for changed, asks_why in listeners:
            try:
                changed(before, after, *([why] if asks_why else ()))
            except Exception as error:  # noqa: BLE001  the caller has done its work, and cannot help it
                log_event("limit.listener_failed", "%r failed at a change of the limit", changed, error=error)

    def calibrate(self, events: Sequence[str]) -> None:
        """Tell the law what the watchers saw in a period; take over its limit."""
        law = self.law
        assert isinstance(law, Calibrated)
        self._resize(lambda now: law.calibrate(events, now), "watchers")

    def _resize(self, limit: Callable[[int], int], why: str) -> None:
        section = self._section
        section.change(lambda: self.take_over(limit(now := section.clock()), now, why))

    def report(self, error: Exception) -> None:
        """Log that the law failed: the first time as an error, then for debugging, since it may fail at each call."""
        level, self._has_failed = logging.DEBUG if self._has_failed else logging.ERROR, True
        log_event("law.failed", "%r failed; the limit stays", self.law, error=error, level=level, law=repr(self.law))
