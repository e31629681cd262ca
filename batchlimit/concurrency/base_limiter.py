"""What the concurrency limiters of both APIs share: their arguments, their watchers and their statistics."""

import time
import weakref
from collections.abc import Callable, Sequence
from typing import Literal, overload

from batchlimit.base.unique import Unique
from batchlimit.concurrency.classification import Classify, classify
from batchlimit.concurrency.law import Law
from batchlimit.concurrency.laws.aimd import Gitaly
from batchlimit.concurrency.laws.knee.knee import Knee
from batchlimit.concurrency.limit_control import by_time_of_day
from batchlimit.concurrency.locked_gate import Bypass, LockedGate
from batchlimit.concurrency.partition import Partitions
from batchlimit.concurrency.queue import NO_QUEUE, Queue
from batchlimit.concurrency.shedding import Shedder, Shedding
from batchlimit.concurrency.statistics import ConcurrencyStatistics
from batchlimit.concurrency.watchers.rounds import Rounds
from batchlimit.concurrency.watchers.watcher import Watcher


class Calibration:
    """Watchers that are polled once a period, from when it is made until it is stopped."""

    def __init__(
        self, locked_gate: LockedGate, watchers: Sequence[Watcher], every: float, shedding: Shedding | None
    ) -> None:
        if shedding is not None and not watchers and shedding.over is None:
            raise ValueError("shedding needs watchers, whose reasons to back off persist, or Shedding(over=3)")
        self._locked_gate = locked_gate
        self._is_watched = bool(watchers)
        self._shedder = None if shedding is None else Shedder(shedding)
        self._rounds = Rounds(watchers, self._tell, every=every, alone=shedding is not None)
        self._rounds.start()

    def stop(self, seconds: float = 1.0) -> None:
        """Poll no more; wait for the round that is under way, for so many seconds at most."""
        self._rounds.stop(seconds)

    def retire(self) -> None:
        """Poll no more, soon: for a limiter that was dropped unclosed. Takes no lock."""
        self._rounds.retire()

    def statistics(self) -> ConcurrencyStatistics:
        """Return what the locked gate counted, and the watchers."""
        return self._locked_gate.statistics(self._rounds.statistics())

    def _tell(self, events: tuple[str, ...]) -> None:
        try:
            if self._is_watched:
                self._locked_gate.control.calibrate(events)
        finally:  # a law that fails is no reason to keep what the memory is full of
            if self._shedder is not None:
                sheddable = self._locked_gate.sheddable
                self._shedder.note(events, sheddable.excess())
                sheddable.shed(self._shedder.choose)


class BaseLimiter(Unique):
    """A locked gate and its watchers. Each of the two APIs has its own way to wait at the gate."""

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
        if isinstance(law, Gitaly) and not watchers:
            raise ValueError(f"{law!r} needs watchers=, such as [MemoryWatcher()]: without any it stays where it is")
        self._locked_gate = LockedGate(
            by_time_of_day(law, clock),
            partitions=partitions,
            queue=queue,
            classify=classify,
            bypass=bypass,
            watchers=watchers,
            clock=clock,
        )
        self._calibration = Calibration(self._locked_gate, watchers, every, shedding)
        # One that was dropped unclosed leaves no thread behind.
        weakref.finalize(self, self._calibration.retire)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._locked_gate!r}>"

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        return self._locked_gate.limit

    @overload
    def listen(self, changed: Callable[[int, int], object]) -> None: ...
    @overload
    def listen(self, changed: Callable[[int, int, str], object], *, why: Literal[True]) -> None: ...
    def listen(self, changed: Callable[..., object], *, why: bool = False) -> None:
        """Have a function called after each change of the limit.

        It is called in the thread that ended a call, set the limit or watches the machine, without any lock: let it be
        quick. What it raises is logged. Two changes that two threads make at once may be told in either order.

        These are the reasons:

        - "room": so few calls queue that more may come
        - "late": calls took too long
        - "loss": calls failed for lack of capacity
        - "unused": far fewer calls came of late than the limit lets
        - "drain": the law looks how long calls take while few are under way, or it is done with that; no trouble
        - "trust": such a drain showed that calls take longer without a queue, too, so the limit is as it was before
        - "watchers": they had a reason to back off in the last period, or none
        - "operator": somebody set the limit

        Args:
            changed: Gets the limit before and after (calls).
            why: Whether `changed` gets the reason, too (default False).

        Raises:
            TypeError: `changed` is no function.

        Example:
            >>> from batchlimit import ConcurrencyLimiter
            >>> from batchlimit.laws import Settable
            >>> law = Settable(20)
            >>> limiter = ConcurrencyLimiter(law)
            >>> limiter.listen(lambda before, after, why: print(before, "->", after, why), why=True)
            >>> law.set_limit(30)
            20 -> 30 operator
            >>> limiter.close()
        """
        if not callable(changed):
            raise TypeError(f"changed must be a function of two limits, not {changed!r}")
        self._locked_gate.control.listen(changed, why)

    def statistics(self) -> ConcurrencyStatistics:
        """Return how many calls are under way and wait now, and what was counted so far.

        Returns:
            A copy, which changes no more.
        """
        return self._calibration.statistics()
