"""Rate limits for aiohttp.web: rules before every request of an application, and a decorator for handlers.

`limits` puts the rules before an application, `route` is the decorator, `hold` is one request between the two.
"""

try:
    import aiohttp  # noqa: F401  said here what is missing, once for all modules of this package
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "batchlimit.integrations.aiohttp needs aiohttp, of the 'aiohttp' extra: pip install 'batchlimit[aiohttp]'",
        name="aiohttp",
    ) from error

from batchlimit.integrations.aiohttp.limits import Limits
from batchlimit.integrations.aiohttp.route import limited
from batchlimit.integrations.enforcement import decisions

__all__ = ["Limits", "decisions", "limited"]
