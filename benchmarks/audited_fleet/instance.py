"""One limiter instance of a fleet, in a process of its own; its callers are threads or tasks."""

import os
from array import array
from ctypes import Array, c_double
from dataclasses import dataclass
from multiprocessing.connection import Connection

from benchmarks.audited_fleet.caller import Caller, CallLog
from benchmarks.audited_fleet.plan import Plan

PUBLISHING = 0.15
"""Seconds between two updates of the counters that a watcher sees."""
COUNTERS = 3
"""How many numbers a process publishes: decisions admitted, decisions refused, store calls."""


@dataclass(slots=True)
class InstanceLog:
    """The log of one process. Instants are seconds of the monotonic clock, which all processes of a machine share."""

    admitted: CallLog
    refused: CallLog
    offered: "array[int]"
    """The tokens that callers asked for in each SPELL since the start."""
    ended: float
    """When the last call ended."""
    calls: int
    """Store calls by the limiter's count, before it was closed."""


class Instance:
    """One process's part of a plan, and its link to the process that started it. No method waits."""

    __slots__ = ("_board", "_link", "_number", "_start", "plan")

    def __init__(self, link: Connection, board: Array[c_double], number: int, plan: Plan, start: float) -> None:
        self.plan = plan
        self._link, self._board, self._number, self._start = link, board, number, start

    def callers(self) -> list[Caller]:
        """Make the callers, each with a schedule of its own."""
        return [Caller(self.plan, self._number, number, self._start) for number in range(self.plan.threads)]

    def is_told_to_stop(self) -> bool:
        """Whether the link has a message or has been closed."""
        return self._link.poll()

    def publish(self, callers: list[Caller], calls: int) -> None:
        """Update the counters that a watcher sees."""
        admitted = sum(len(caller.admitted) for caller in callers)
        refused = sum(len(caller.refused) for caller in callers)
        self._board[self._number * COUNTERS : (self._number + 1) * COUNTERS] = [admitted, refused, calls]

    def ended(self, callers: list[Caller], calls: int) -> InstanceLog:
        """Return the log of all callers. A process that vanishes by plan sends it and exits at once."""
        self.publish(callers, calls)
        log = _merged(callers, calls)
        if self.plan.vanishes(self._number):
            self._link.send(log)
            os._exit(0)  # as if killed: what it has leased goes with it
        return log


def _merged(callers: list[Caller], calls: int) -> InstanceLog:
    log = InstanceLog(CallLog(), CallLog(), array("q"), max(caller.ended for caller in callers), calls)
    for caller in callers:
        log.admitted.extend(caller.admitted)
        log.refused.extend(caller.refused)
    log.offered.extend(sum(spell) for spell in zip(*(caller.offered for caller in callers), strict=True))
    return log
