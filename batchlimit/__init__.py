"""Rate limiting for services on many hosts: exact like one token bucket, as fast as memory."""

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
