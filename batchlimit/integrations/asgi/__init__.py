"""Rate limits and concurrency limits for any ASGI application: http and websocket, streams, and the lifespan.

`RateLimitMiddleware` holds rules against requests. `ConcurrencyLimitMiddleware` bounds how many are under way. Both are
plain ASGI: they touch nothing of a response but its start, and need no framework.
"""

from batchlimit.integrations.asgi.concurrency import ConcurrencyLimitMiddleware
from batchlimit.integrations.asgi.middleware import RateLimitMiddleware

__all__ = ["ConcurrencyLimitMiddleware", "RateLimitMiddleware"]
