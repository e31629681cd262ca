"""Rate limits and concurrency limits for any WSGI application: plain PEP 3333, and no framework."""

from batchlimit.integrations.concurrency_limit import ConcurrencyLimit
from batchlimit.integrations.wsgi.concurrency import ConcurrencyLimitMiddleware
from batchlimit.integrations.wsgi.middleware import RateLimitMiddleware

__all__ = ["ConcurrencyLimit", "ConcurrencyLimitMiddleware", "RateLimitMiddleware"]
