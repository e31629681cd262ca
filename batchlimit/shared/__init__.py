"""The shared concurrency limiter: as many calls at once as each key may have over the whole fleet.

Theory of operation
-------------------
Promises:

1. All instances together never hold more than `limit` permits of a key. This holds provided that the store keeps its
   data, its clock does not jump ahead by a tenth of a lease, and a call stops when its permit is lost.
2. A permit that cannot be renewed is lost for its holder before the store lends its slot to another one.
3. A process that dies gives its permits back when their lease is over. A permit that nobody releases is found by the
   garbage collector.
4. A caller waits in order; processes get slots by weight. A push tells the next instance of a release. In case
   the push was lost, that instance asks every 0.5 to 1 s.

Parts: a limiter has an Engine, which has LocalSlots for each key in use. LocalSlots are pure: they say who gets a slot
here, when to ask, and for how many. They are made of two parts. A Line knows who waits, and who is next. HeldSlots
know which slots are free here under one lease, and how many to give back.

`lua/lend.lua` lends the slots. Its twin in Python, `bucket/slot_table.py`, lends those of `memory://`. The Engine
has a thread that asks, for threads and for asyncio alike, and a Listener whose thread reads pushes.

An ask tells all that an instance holds and wants, and the slots it returned so far; the reply tells the slots it was
granted so far. Neither number ever falls. So an ask may be repeated, lost or overtaken: slots are then counted for too
long, never too briefly.

A lease begins for the holder before its ask was sent, and nine tenths of it are used. The next ask, after a third,
renews it. A lease that is over stays over: its permits are lost, and the instance asks under a new name.

How many slots stay here when no permit holds them: none while others wait. Else as many as the free slots of the store
and of this instance, divided by the instances and one more. So of few slots each acquire asks; of many, slots are
leased in batches, and a permit is taken from memory.

A process forks: the child has no lease, so its permits are lost and their release changes nothing.
"""

from typing import TYPE_CHECKING

from batchlimit.base.lazy import names

if TYPE_CHECKING:
    from batchlimit.shared.holdings import SharedKeyStatistics, SharedStatistics
    from batchlimit.shared.limiter import AsyncSharedConcurrencyLimiter, SharedConcurrencyLimiter
    from batchlimit.shared.local_slots import Shared
    from batchlimit.shared.permit import AsyncSharedPermit, SharedPermit
else:  # where __getattr__ would hide a name that there is not
    __getattr__, __dir__ = names(
        __name__,
        {
            "batchlimit.shared.limiter": "AsyncSharedConcurrencyLimiter SharedConcurrencyLimiter",
            "batchlimit.shared.permit": "AsyncSharedPermit SharedPermit",
            "batchlimit.shared.local_slots": "Shared",
            "batchlimit.shared.holdings": "SharedKeyStatistics SharedStatistics",
        },
    )

__all__ = [
    "AsyncSharedConcurrencyLimiter", "AsyncSharedPermit", "Shared", "SharedConcurrencyLimiter", "SharedKeyStatistics",
    "SharedPermit", "SharedStatistics",
]  # fmt: skip
