"""Rate limiting for services on many hosts: exact like one token bucket, as fast as memory."""

from batchlimit.aio.rate import AsyncRateLimiter
from batchlimit.aio.reservation import AsyncReservation
from batchlimit.core.batch import BatchSizer, FixedBatch, FractionBatch, GrowingBatch, TimeBatch, Usage
from batchlimit.core.decision import Decision, Statistics
from batchlimit.core.quota import Quota
from batchlimit.errors import BatchLimitError, LimiterClosed, RateLimited, StoreUnavailable
from batchlimit.stores.async_redis import AsyncRedisStore
from batchlimit.stores.base import AsyncStore, Store
from batchlimit.stores.memory import MemoryStore
from batchlimit.stores.redis import RedisStore
from batchlimit.sync.rate import RateLimiter
from batchlimit.sync.reservation import Reservation

__all__ = [
    "AsyncRateLimiter",
    "AsyncRedisStore",
    "AsyncReservation",
    "AsyncStore",
    "BatchLimitError",
    "BatchSizer",
    "Decision",
    "FixedBatch",
    "FractionBatch",
    "GrowingBatch",
    "LimiterClosed",
    "MemoryStore",
    "Quota",
    "RateLimited",
    "RateLimiter",
    "RedisStore",
    "Reservation",
    "Statistics",
    "Store",
    "StoreUnavailable",
    "TimeBatch",
    "Usage",
]
