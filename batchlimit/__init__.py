"""Rate limiting for services on many hosts: exact like one token bucket, as fast as memory."""

from typing import TYPE_CHECKING

from batchlimit.lazy import names

if TYPE_CHECKING:
    from batchlimit.aio.limiter import AsyncRateLimiter
    from batchlimit.aio.reservation import AsyncReservation
    from batchlimit.concurrency.async_limiter import AsyncConcurrencyLimiter
    from batchlimit.concurrency.async_permit import AsyncPermit
    from batchlimit.concurrency.classify import classify
    from batchlimit.concurrency.law import Calibrated, Law, Outcome, Sample
    from batchlimit.concurrency.limiter import ConcurrencyLimiter, Permit
    from batchlimit.concurrency.partition import Partitions
    from batchlimit.concurrency.queue import Queue
    from batchlimit.concurrency.shedding import Shedding
    from batchlimit.concurrency.statistics import ConcurrencyStatistics, PartitionStatistics, WatcherStatistics
    from batchlimit.errors import (
        BatchLimitError,
        BucketUnavailable,
        ConcurrencyLimited,
        LimiterClosed,
        RateLimited,
        StoreUnavailable,
        WatcherUnavailable,
    )
    from batchlimit.quota.quota import Quota
    from batchlimit.reservoir.failure_policy import FailurePolicy
    from batchlimit.reservoir.sizing import BatchSizer, FixedBatch, FractionBatch, GrowingBatch, TimeBatch, Usage
    from batchlimit.reservoir.statistics import Decision, Statistics
    from batchlimit.stores.async_redis import AsyncRedisStore
    from batchlimit.stores.memory import MemoryStore
    from batchlimit.stores.protocols import AsyncStore, Store
    from batchlimit.stores.redis import RedisStore
    from batchlimit.sync.limiter import RateLimiter
    from batchlimit.sync.reservation import Reservation
else:  # where __getattr__ would hide a name that there is not
    __getattr__, __dir__ = names(
        __name__,
        {
            "batchlimit.concurrency.async_limiter": "AsyncConcurrencyLimiter",
            "batchlimit.concurrency.async_permit": "AsyncPermit",
            "batchlimit.aio.limiter": "AsyncRateLimiter",
            "batchlimit.aio.reservation": "AsyncReservation",
            "batchlimit.reservoir.sizing": "BatchSizer FixedBatch FractionBatch GrowingBatch TimeBatch Usage",
            "batchlimit.reservoir.statistics": "Decision Statistics",
            "batchlimit.reservoir.failure_policy": "FailurePolicy",
            "batchlimit.concurrency.law": "Calibrated Law Outcome Sample",
            "batchlimit.concurrency.partition": "Partitions",
            "batchlimit.concurrency.queue": "Queue",
            "batchlimit.quota.quota": "Quota",
            "batchlimit.concurrency.shedding": "Shedding",
            "batchlimit.concurrency.statistics": "ConcurrencyStatistics PartitionStatistics WatcherStatistics",
            "batchlimit.concurrency.classify": "classify",
            "batchlimit.errors": (
                "BatchLimitError BucketUnavailable ConcurrencyLimited LimiterClosed RateLimited StoreUnavailable "
                "WatcherUnavailable"
            ),
            "batchlimit.stores.async_redis": "AsyncRedisStore",
            "batchlimit.stores.protocols": "AsyncStore Store",
            "batchlimit.stores.memory": "MemoryStore",
            "batchlimit.stores.redis": "RedisStore",
            "batchlimit.concurrency.limiter": "ConcurrencyLimiter Permit",
            "batchlimit.sync.limiter": "RateLimiter",
            "batchlimit.sync.reservation": "Reservation",
        },
        parts="aio bucket clock concurrency errors laws quota reservoir stores sync watchers",
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
