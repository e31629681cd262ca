"""The adaptive concurrency limiter: how many calls may be under way at once.

ConcurrencyLimiter, AsyncConcurrencyLimiter, Partitions and Queue are names of batchlimit itself.

Theory of operation
-------------------
Promises:

1. Never more calls are under way than the limit says. Two exceptions: the limit fell while they were under way, or a
   partition that is not strict claims its share. Calls that `bypass` lets in are not counted.
2. Every permit is completed once: by its caller, by the end of its block, or by the garbage collector.
3. A waiter is served once or gives up; whichever comes first is final. Nobody waits while there is room, but
   for a moment: waiters are served sixteen at a time.
4. No call blocks a thread or an event loop, except to wait in the queue.

Parts: a limiter has a LockedGate and Rounds. The LockedGate has a law and the permits that may be shed; it is a
CriticalSection: a lock, the Gate with its queue, and Counts. The Gate, its Partitions, its waiters and the laws are
pure: they read no clock, take no lock and wake nobody. The locked gate and the permits do all of this for them.

    state of a permit   it is                               what moves it on
    ASKED               made by `acquire`, not entered      `_enter`: to HELD, BYPASS or OVER
    WAITING             in the queue; in asyncio only       served: to HELD; timeout, cancellation, close: to OVER
    HELD                counted in the gate                 `_leave`, once: to OVER, or to LEFT during another change
    LEFT                not counted; the law is to be told  `_leave`, when that change is complete: to OVER
    BYPASS              let in by `bypass`, not counted     `_leave`: to OVER
    OVER                complete, or not admitted           if it may wait: to WAITING in asyncio, to HELD in a thread

A call enters: `acquire` makes a permit and calls its `_enter`; in asyncio the task does. If that returns seconds, so
long may the caller wait: it joins the queue, until it is woken. It leaves that in any case, the permit held or not.

A call is interrupted, by a signal handler that raises: what is counted, and what refers to the marker of a partition,
changes with no call in between. A refused caller compares the two. So it finds the calls that nobody ended, though
their permits are no more. `unwoken` has each served caller until somebody wakes it. The next call that leaves does,
and each that waits looks once a second, by `CriticalSection.catch_up`.

A call leaves: its end calls `_leave` of the permit. The gate counts one call less. The law learns from a Sample and
returns a limit. The gate serves waiters, which are woken as soon as the lock is free.

A period ends: the thread of Rounds polls the watchers and calls `LockedGate.end_period`, which tells the law what they
saw, and ends calls if overload lasts.

A process forks: the child gets an empty gate and a new lock. Permits and waiters of its parent change nothing there.
"""

from typing import TYPE_CHECKING

from batchlimit.base.lazy import names

if TYPE_CHECKING:
    from batchlimit.concurrency.async_limiter import AsyncPermit
    from batchlimit.concurrency.classification import Classify, classify
    from batchlimit.concurrency.keyed.limiter import AsyncKeyedConcurrencyLimiter, KeyedConcurrencyLimiter
    from batchlimit.concurrency.keyed.limits import Keyed, KeyedStatistics, KeyStatistics, PatternStatistics
    from batchlimit.concurrency.keyed.permits import AsyncPermits, Permits
    from batchlimit.concurrency.law import Calibrated, Law, Outcome, Sample
    from batchlimit.concurrency.locked_gate import Bypass
    from batchlimit.concurrency.permit import Permit
    from batchlimit.concurrency.shedding import Shedding
    from batchlimit.concurrency.statistics import ConcurrencyStatistics, PartitionStatistics, WatcherStatistics
else:  # where __getattr__ would hide a name that there is not
    __getattr__, __dir__ = names(
        __name__,
        {
            "batchlimit.concurrency.async_limiter": "AsyncPermit",
            "batchlimit.concurrency.classification": "Classify classify",
            "batchlimit.concurrency.keyed.permits": "AsyncPermits Permits",
            "batchlimit.concurrency.keyed.limiter": "AsyncKeyedConcurrencyLimiter KeyedConcurrencyLimiter",
            "batchlimit.concurrency.keyed.limits": "KeyStatistics Keyed KeyedStatistics PatternStatistics",
            "batchlimit.concurrency.law": "Calibrated Law Outcome Sample",
            "batchlimit.concurrency.locked_gate": "Bypass",
            "batchlimit.concurrency.permit": "Permit",
            "batchlimit.concurrency.shedding": "Shedding",
            "batchlimit.concurrency.statistics": "ConcurrencyStatistics PartitionStatistics WatcherStatistics",
        },
        modules="laws watchers",
    )

__all__ = [
    "AsyncKeyedConcurrencyLimiter", "AsyncPermit", "AsyncPermits", "Bypass", "Calibrated", "Classify",
    "ConcurrencyStatistics", "KeyStatistics", "Keyed", "KeyedConcurrencyLimiter", "KeyedStatistics", "Law", "Outcome",
    "PartitionStatistics", "PatternStatistics", "Permit", "Permits", "Sample", "Shedding", "WatcherStatistics",
    "classify",
]  # fmt: skip
