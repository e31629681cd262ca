"""For tests of what is limited: limiters without a server, in time that a test moves.

The fixtures of `batchlimit.testing.plugin` are there wherever pytest and batchlimit are installed.
"""

from typing import TYPE_CHECKING

from batchlimit.base.lazy import names

if TYPE_CHECKING:
    from batchlimit.testing.assertion import assert_limited
    from batchlimit.testing.contract.check import check_store, store_rules
    from batchlimit.testing.fake import AsyncFakeLimiter, FakeLimiter, Script, fake_async_limiter, fake_limiter
    from batchlimit.testing.faults import AsyncFaultStore, FaultStore
    from batchlimit.testing.frozen import FrozenLimits, frozen_limits, limiting_off, limiting_on
    from batchlimit.testing.isolation import fresh_prefix, isolated_limits
else:  # where __getattr__ would hide a name that there is not
    __getattr__, __dir__ = names(
        __name__,
        {
            "batchlimit.testing.assertion": "assert_limited",
            "batchlimit.testing.contract.check": "check_store store_rules",
            "batchlimit.testing.fake": "AsyncFakeLimiter FakeLimiter Script fake_async_limiter fake_limiter",
            "batchlimit.testing.faults": "AsyncFaultStore FaultStore",
            "batchlimit.testing.frozen": "FrozenLimits frozen_limits limiting_off limiting_on",
            "batchlimit.testing.isolation": "fresh_prefix isolated_limits",
        },
    )

__all__ = [
    "AsyncFakeLimiter",
    "AsyncFaultStore",
    "FakeLimiter",
    "FaultStore",
    "FrozenLimits",
    "Script",
    "assert_limited",
    "check_store",
    "fake_async_limiter",
    "fake_limiter",
    "fresh_prefix",
    "frozen_limits",
    "isolated_limits",
    "limiting_off",
    "limiting_on",
    "store_rules",
]
