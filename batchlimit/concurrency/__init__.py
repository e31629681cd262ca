"""The adaptive concurrency limiter: how many calls may be under way at once.

ConcurrencyLimiter, AsyncConcurrencyLimiter, Partitions and Queue are names of batchlimit itself.
"""

from typing import TYPE_CHECKING

from batchlimit.lazy import names

if TYPE_CHECKING:
    from batchlimit.concurrency.async_permit import AsyncPermit
    from batchlimit.concurrency.classification import Classify, classify
    from batchlimit.concurrency.law import Calibrated, Law, Outcome, Sample
    from batchlimit.concurrency.limiter import Permit
    from batchlimit.concurrency.locked_gate import Bypass
    from batchlimit.concurrency.shedding import Shedding
    from batchlimit.concurrency.statistics import ConcurrencyStatistics, PartitionStatistics, WatcherStatistics
else:  # where __getattr__ would hide a name that there is not
    __getattr__, __dir__ = names(
        __name__,
        {
            "batchlimit.concurrency.async_permit": "AsyncPermit",
            "batchlimit.concurrency.classification": "Classify classify",
            "batchlimit.concurrency.law": "Calibrated Law Outcome Sample",
            "batchlimit.concurrency.limiter": "Permit",
            "batchlimit.concurrency.locked_gate": "Bypass",
            "batchlimit.concurrency.shedding": "Shedding",
            "batchlimit.concurrency.statistics": "ConcurrencyStatistics PartitionStatistics WatcherStatistics",
        },
        modules="laws watchers",
    )

__all__ = [
    "AsyncPermit",
    "Bypass",
    "Calibrated",
    "Classify",
    "ConcurrencyStatistics",
    "Law",
    "Outcome",
    "PartitionStatistics",
    "Permit",
    "Sample",
    "Shedding",
    "WatcherStatistics",
    "classify",
]
