"""Rate limits and concurrency limits for any ASGI application: http and websocket, streams, and the lifespan."""

from typing import TYPE_CHECKING

from batchlimit.base.lazy import names

if TYPE_CHECKING:
    from batchlimit.integrations.asgi.concurrency import ConcurrencyLimitMiddleware
    from batchlimit.integrations.asgi.middleware import RateLimitMiddleware
    from batchlimit.integrations.asgi.route import RouteLimitMiddleware
    from batchlimit.integrations.enforcement import decisions
    from batchlimit.integrations.permits import ConcurrencyLimit
else:
    __getattr__, __dir__ = names(
        __name__,
        {
            "batchlimit.integrations.asgi.concurrency": "ConcurrencyLimitMiddleware",
            "batchlimit.integrations.enforcement": "decisions",
            "batchlimit.integrations.permits": "ConcurrencyLimit",
            "batchlimit.integrations.asgi.middleware": "RateLimitMiddleware",
            "batchlimit.integrations.asgi.route": "RouteLimitMiddleware",
        },
    )

__all__ = ["ConcurrencyLimit", "ConcurrencyLimitMiddleware", "RateLimitMiddleware", "RouteLimitMiddleware", "decisions"]
