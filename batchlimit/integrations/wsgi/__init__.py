"""Rate limits and concurrency limits for any WSGI application: plain PEP 3333, and no framework."""

from batchlimit.integrations.wsgi.concurrency import ConcurrencyLimitMiddleware
from batchlimit.integrations.wsgi.middleware import RateLimitMiddleware

__all__ = ["ConcurrencyLimitMiddleware", "RateLimitMiddleware"]
