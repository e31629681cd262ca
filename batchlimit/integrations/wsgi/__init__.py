"""Rate limits and concurrency limits for any WSGI application: plain PEP 3333, and no framework."""

from typing import TYPE_CHECKING

from batchlimit.base.lazy import names

if TYPE_CHECKING:
    from batchlimit.integrations.enforcement import decisions
    from batchlimit.integrations.permits import ConcurrencyLimit
    from batchlimit.integrations.wsgi.concurrency import ConcurrencyLimitMiddleware
    from batchlimit.integrations.wsgi.middleware import RateLimitMiddleware
else:
    __getattr__, __dir__ = names(
        __name__,
        {
            "batchlimit.integrations.enforcement": "decisions",
            "batchlimit.integrations.permits": "ConcurrencyLimit",
            "batchlimit.integrations.wsgi.concurrency": "ConcurrencyLimitMiddleware",
            "batchlimit.integrations.wsgi.middleware": "RateLimitMiddleware",
        },
    )

__all__ = ["ConcurrencyLimit", "ConcurrencyLimitMiddleware", "RateLimitMiddleware", "decisions"]
