"""Rate limiting for services of many processes: one exact global limit, decided from memory.

Start with RateLimiter, or AsyncRateLimiter in asyncio; ConcurrencyLimiter limits how many calls are under way at once.

The modules below hold the rest:
    batchlimit.batching      how many tokens to lease at a time: TimeBatch (the default), FixedBatch, ...
    batchlimit.rules         which requests are charged to which keys, for web services: Rule, Rules, Request
    batchlimit.stores        where buckets live: RedisStore, AsyncRedisStore, MemoryStore, and the Store protocol
    batchlimit.concurrency   permits, outcomes, shedding and statistics of the concurrency limiter
    batchlimit.laws          laws that set a concurrency limit: Knee (the default), Vegas, Gradient2, AIMD, ...
    batchlimit.watchers      watchers of memory, CPU, latency and event loop for the concurrency limiter
    batchlimit.admission     a rate limiter and a concurrency limiter together: Admission, AsyncAdmission
    batchlimit.errors        every error, and who should act on it
    batchlimit.types         types of arguments and results, for annotations
    batchlimit.testing       limits in tests: frozen time, switches, faults, and the contract of stores
"""

from typing import TYPE_CHECKING

from batchlimit.base.lazy import names

if TYPE_CHECKING:
    from batchlimit import admission as admission
    from batchlimit import batching as batching
    from batchlimit import concurrency as concurrency
    from batchlimit import errors as errors
    from batchlimit import laws as laws
    from batchlimit import rules as rules
    from batchlimit import shared as shared
    from batchlimit import stores as stores
    from batchlimit import testing as testing
    from batchlimit import types as types
    from batchlimit import watchers as watchers
    from batchlimit.aio.limiter import AsyncRateLimiter
    from batchlimit.base.decision import Decision
    from batchlimit.concurrency.async_limiter import AsyncConcurrencyLimiter
    from batchlimit.concurrency.limiter import ConcurrencyLimiter
    from batchlimit.concurrency.partition import Partitions
    from batchlimit.concurrency.queue import Queue
    from batchlimit.errors import BatchLimitError, ConcurrencyLimited, LimiterClosed, RateLimited, StoreUnavailable
    from batchlimit.quota.failure_policy import FailurePolicy
    from batchlimit.quota.quota import Quota
    from batchlimit.reservoir.statistics import Statistics
    from batchlimit.sync.limiter import RateLimiter

    __version__: str
else:  # where __getattr__ would hide a name that there is not
    __getattr__, __dir__ = names(
        __name__,
        {
            "batchlimit.aio.limiter": "AsyncRateLimiter",
            "batchlimit.concurrency.async_limiter": "AsyncConcurrencyLimiter",
            "batchlimit.concurrency.limiter": "ConcurrencyLimiter",
            "batchlimit.concurrency.partition": "Partitions",
            "batchlimit.concurrency.queue": "Queue",
            "batchlimit.errors": "BatchLimitError ConcurrencyLimited LimiterClosed RateLimited StoreUnavailable",
            "batchlimit.quota.quota": "Quota",
            "batchlimit.quota.failure_policy": "FailurePolicy",
            "batchlimit.base.decision": "Decision",
            "batchlimit.reservoir.statistics": "Statistics",
            "batchlimit.sync.limiter": "RateLimiter",
        },
        modules="admission batching concurrency errors laws rules shared stores testing types watchers",
        distribution="batchlimit",
    )

__all__ = [
    "AsyncConcurrencyLimiter",
    "AsyncRateLimiter",
    "BatchLimitError",
    "ConcurrencyLimited",
    "ConcurrencyLimiter",
    "Decision",
    "FailurePolicy",
    "LimiterClosed",
    "Partitions",
    "Queue",
    "Quota",
    "RateLimited",
    "RateLimiter",
    "Statistics",
    "StoreUnavailable",
]
