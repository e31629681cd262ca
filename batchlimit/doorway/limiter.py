"""What both concurrency limiters have alike: what they are told, and what they tell."""

import time
import weakref
from collections.abc import Callable, Sequence

from batchlimit.core.law import Law
from batchlimit.core.partition import Partitions
from batchlimit.core.queue import NO_QUEUE, Queue
from batchlimit.core.shedding import Shedding
from batchlimit.core.tally import ConcurrencyStatistics
from batchlimit.core.unique import Unique
from batchlimit.doorway.calibration import Calibration
from batchlimit.doorway.classify import Classify, classify
from batchlimit.doorway.door import Bypass, Door
from batchlimit.laws.knee import Knee
from batchlimit.watchers.base import Watcher


class Limiter(Unique):
    """A door and those who watch the machine for it. How to wait at the door is each front's own."""

    _instead = "make one in each process: each limits itself"

    def __init__(
        self,
        law: Law | None = None,
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
        law = Knee() if law is None else law
        if isinstance(law, type) or not isinstance(law, Law):
            raise TypeError(f"law must be a law, like Fixed(20), not {law!r}")
        if not isinstance(partitions, Partitions | None):
            raise TypeError(f'partitions must be like Partitions({{"live": 0.5}}), not {partitions!r}')
        if not isinstance(queue, Queue):
            raise TypeError(f"queue must be like Queue(100), not {queue!r}")
        for name, function in (("classify", classify), ("bypass", bypass), ("clock", clock)):
            if not callable(function) and (name, function) != ("bypass", None):
                raise TypeError(f"{name} must be a function, not {function!r}")
        watchers = tuple(watchers)
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
        weakref.finalize(self, self._calibration.retire)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._door!r}>"

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        return self._door.limit

    def statistics(self) -> ConcurrencyStatistics:
        """Return what is under way and waits now, and what was counted so far."""
        return self._calibration.statistics()
