"""Rate limits for aiohttp.web: rules before every request of an application, and a decorator for handlers."""

from batchlimit.base.lazy import needed

with needed(__name__, "aiohttp"):
    import aiohttp  # noqa: F401  said here what is missing, once for all modules of this package

from typing import TYPE_CHECKING

from batchlimit.base.lazy import names

if TYPE_CHECKING:
    from batchlimit.integrations.aiohttp.concurrency import concurrency_limits
    from batchlimit.integrations.aiohttp.limits import Limits, limited
    from batchlimit.integrations.enforcement import decisions
else:
    __getattr__, __dir__ = names(
        __name__,
        {
            "batchlimit.integrations.aiohttp.concurrency": "concurrency_limits",
            "batchlimit.integrations.aiohttp.limits": "Limits limited",
            "batchlimit.integrations.enforcement": "decisions",
        },
    )

__all__ = ["Limits", "concurrency_limits", "decisions", "limited"]
