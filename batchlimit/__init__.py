"""Rate limiting for services on many hosts: exact like one token bucket, as fast as memory."""

from typing import TYPE_CHECKING

from batchlimit.lazy import names

if TYPE_CHECKING:
    from batchlimit.aio.concurrency import AsyncConcurrencyLimiter
    from batchlimit.aio.permit import AsyncPermit
    from batchlimit.aio.rate import AsyncRateLimiter
    from batchlimit.aio.reservation import AsyncReservation
    from batchlimit.core.batch import BatchSizer, FixedBatch, FractionBatch, GrowingBatch, TimeBatch, Usage
    from batchlimit.core.decision import Decision, Statistics
    from batchlimit.core.failure import FailurePolicy
    from batchlimit.core.law import Calibrated, Law
    from batchlimit.core.partition import Partitions
    from batchlimit.core.queue import Queue
    from batchlimit.core.quota import Quota
    from batchlimit.core.sample import Outcome, Sample
    from batchlimit.core.shedding import Shedding
    from batchlimit.core.tally import ConcurrencyStatistics, PartitionStatistics, WatcherStatistics
    from batchlimit.doorway.classify import classify
    from batchlimit.errors import (
        BatchLimitError,
        BucketUnavailable,
        ConcurrencyLimited,
        LimiterClosed,
        RateLimited,
        StoreUnavailable,
        WatcherUnavailable,
    )
    from batchlimit.stores.async_redis import AsyncRedisStore
    from batchlimit.stores.base import AsyncStore, Store
    from batchlimit.stores.memory import MemoryStore
    from batchlimit.stores.redis import RedisStore
    from batchlimit.sync.concurrency import ConcurrencyLimiter
    from batchlimit.sync.permit import Permit
    from batchlimit.sync.rate import RateLimiter
    from batchlimit.sync.reservation import Reservation
else:  # where __getattr__ would hide a name that there is not
    __getattr__, __dir__ = names(
        __name__,
        {
            "batchlimit.aio.concurrency": "AsyncConcurrencyLimiter",
            "batchlimit.aio.permit": "AsyncPermit",
            "batchlimit.aio.rate": "AsyncRateLimiter",
            "batchlimit.aio.reservation": "AsyncReservation",
            "batchlimit.core.batch": "BatchSizer FixedBatch FractionBatch GrowingBatch TimeBatch Usage",
            "batchlimit.core.decision": "Decision Statistics",
            "batchlimit.core.failure": "FailurePolicy",
            "batchlimit.core.law": "Calibrated Law",
            "batchlimit.core.partition": "Partitions",
            "batchlimit.core.queue": "Queue",
            "batchlimit.core.quota": "Quota",
            "batchlimit.core.sample": "Outcome Sample",
            "batchlimit.core.shedding": "Shedding",
            "batchlimit.core.tally": "ConcurrencyStatistics PartitionStatistics WatcherStatistics",
            "batchlimit.doorway.classify": "classify",
            "batchlimit.errors": (
                "BatchLimitError BucketUnavailable ConcurrencyLimited LimiterClosed RateLimited StoreUnavailable "
                "WatcherUnavailable"
            ),
            "batchlimit.stores.async_redis": "AsyncRedisStore",
            "batchlimit.stores.base": "AsyncStore Store",
            "batchlimit.stores.memory": "MemoryStore",
            "batchlimit.stores.redis": "RedisStore",
            "batchlimit.sync.concurrency": "ConcurrencyLimiter",
            "batchlimit.sync.permit": "Permit",
            "batchlimit.sync.rate": "RateLimiter",
            "batchlimit.sync.reservation": "Reservation",
        },
        parts="aio clock core doorway errors laws redaction stores sync watchers",
    )

__all__ = [
    "AsyncConcurrencyLimiter",
    "AsyncPermit",
    "AsyncRateLimiter",
    "AsyncRedisStore",
    "AsyncReservation",
    "AsyncStore",
    "BatchLimitError",
    "BatchSizer",
    "BucketUnavailable",
    "Calibrated",
    "ConcurrencyLimited",
    "ConcurrencyLimiter",
    "ConcurrencyStatistics",
    "Decision",
    "FailurePolicy",
    "FixedBatch",
    "FractionBatch",
    "GrowingBatch",
    "Law",
    "LimiterClosed",
    "MemoryStore",
    "Outcome",
    "PartitionStatistics",
    "Partitions",
    "Permit",
    "Queue",
    "Quota",
    "RateLimited",
    "RateLimiter",
    "RedisStore",
    "Reservation",
    "Sample",
    "Shedding",
    "Statistics",
    "Store",
    "StoreUnavailable",
    "TimeBatch",
    "Usage",
    "WatcherStatistics",
    "WatcherUnavailable",
    "classify",
]
