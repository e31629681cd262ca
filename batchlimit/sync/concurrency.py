"""ConcurrencyLimiter: the threaded front of the concurrency limiter."""

import math
import time
import weakref
from collections.abc import Callable, Sequence
from threading import TIMEOUT_MAX, Event
from types import TracebackType
from typing import Self

from batchlimit.core.claim import patience
from batchlimit.core.law import Law
from batchlimit.core.partition import Partitions
from batchlimit.core.queue import NO_QUEUE, Queue
from batchlimit.core.shedding import Shedding
from batchlimit.core.tally import ConcurrencyStatistics
from batchlimit.doorway.calibration import Calibration
from batchlimit.doorway.classify import Classify, classify
from batchlimit.doorway.door import Bypass, Door
from batchlimit.sync.loops import warn_in_loop
from batchlimit.sync.permit import Permit
from batchlimit.watchers.base import Watcher

_SECOND = 1_000_000_000


class ConcurrencyLimiter:
    """Limits how many calls are under way at once, to what its law finds is best; safe in threads and over fork.

    `law` sets the limit. `partitions` guarantees parts of it by name. Who finds no room waits in `queue`, if there is
    one. `classify` says of an exception that ends a call what it tells about the load; `bypass(operation, partition)`
    says which calls the limit is not for. `watchers` look at the machine once in `every` seconds, in a thread, and the
    law hears of what they see; if it persists, `shedding` ends calls that are under way. `clock` gives ns and must
    never run backwards.
    """

    def __init__(
        self,
        law: Law,
        *,
        partitions: Partitions | None = None,
        queue: Queue = NO_QUEUE,
        classify: Classify = classify,
        bypass: Bypass | None = None,
        watchers: Sequence[Watcher] = (),
        every: float = 30.0,
        shedding: Shedding | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._door = Door(
            law,
            partitions=partitions,
            queue=queue,
            classify=classify,
            bypass=bypass,
            watchers=watchers,
            clock=clock,
        )
        self._calibration = Calibration(self._door, watchers, every, shedding)
        # One that was dropped unclosed leaves no thread behind.
        weakref.finalize(self, self._calibration.stop, 0)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._door!r}>"

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        return self._door.limit

    def acquire(
        self,
        partition: str = "",
        *,
        timeout: float | None = None,
        operation: str = "",
        priority: int = 0,
        sheddable: bool = False,
    ) -> Permit:
        """Return a permit, at once or when it is this caller's turn; ConcurrencyLimited says why not, LimiterClosed.

        It waits for `timeout` seconds at most (None: as long as the queue lets it, 0: not at all), and never longer
        than the queue lets it. `operation` is what kind of call it is, for laws that hold unlike kinds apart. One that
        is `sheddable` may be told to give up, those of low `priority` first; see Shedding.
        """
        permit = Permit(self._door, operation, priority, sheddable)
        wait = math.inf if timeout is None else patience(timeout)
        if not self._door.enter(permit, partition):
            self._wait(permit, partition, wait)
        if sheddable:
            self._door.expose(permit)
        return permit

    def _wait(self, permit: Permit, partition: str, timeout: float) -> None:
        """Line up, and come back with the permit held."""
        door = self._door
        seconds = door.queue.patience(timeout)
        if seconds <= 0:
            raise door.refusal()
        warn_in_loop()
        turn = Event()
        waiter = door.line_up(partition, turn.set)
        try:
            self._await(turn, seconds)
        except BaseException:
            if door.end_wait(permit, waiter):
                permit.ignore()
            raise
        if not door.end_wait(permit, waiter):
            raise door.refusal("queue_timeout")

    def _await(self, turn: Event, seconds: float) -> None:
        """Return when it is their turn, or after so many seconds."""
        until = self._door.clock() + seconds * _SECOND
        while seconds > 0 and not turn.wait(min(seconds, self._door.patience, TIMEOUT_MAX)):
            self._door.look()
            seconds = (until - self._door.clock()) / _SECOND

    def statistics(self) -> ConcurrencyStatistics:
        """Return what is under way and waits now, and what was counted so far."""
        return self._door.statistics()

    def close(self) -> None:
        """Let nobody enter any more; who waits is sent away with LimiterClosed, who is under way goes on."""
        self._calibration.stop()
        self._door.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
