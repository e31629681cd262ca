"""Rate limits for Quart: an extension that holds rules against every request, and a decorator for views and websockets.

`limits` is the extension, which puts `RateLimitMiddleware` before the application. `route` is what views and blueprints
ask for; a refusal of theirs raises `Rejected`, which Quart's error handlers answer. `operation` tells a
concurrency limit before the application of which route a request is.
"""

from batchlimit.base.lazy import needed

with needed(__name__, "quart", "Quart"):
    import quart  # noqa: F401  said here what is missing, once for all modules of this package

from batchlimit.integrations.enforcement import decisions
from batchlimit.integrations.extension import Rejected
from batchlimit.integrations.quart.limits import Limits
from batchlimit.integrations.quart.route import limit_blueprint, limited, name_operations

__all__ = ["Limits", "Rejected", "decisions", "limit_blueprint", "limited", "name_operations"]
