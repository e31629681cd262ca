"""For tests of what is limited: limiters without a server, in time that a test moves.

The fixtures of `batchlimit.testing.plugin` are there wherever pytest and batchlimit are installed.
"""

from typing import TYPE_CHECKING

from batchlimit.lazy import names

if TYPE_CHECKING:
    from batchlimit.testing.assertion import assert_limited
    from batchlimit.testing.contract.check import check_store, store_rules
    from batchlimit.testing.contract.rule import Rule
    from batchlimit.testing.faults import AsyncFaultStore, FaultStore
    from batchlimit.testing.frozen import FrozenLimits, frozen_limits
    from batchlimit.testing.switch import Switch, limiting_off, limiting_on
else:  # where __getattr__ would hide a name that there is not
    __getattr__, __dir__ = names(
        __name__,
        {
            "batchlimit.testing.assertion": "assert_limited",
            "batchlimit.testing.contract.check": "check_store store_rules",
            "batchlimit.testing.contract.rule": "Rule",
            "batchlimit.testing.faults": "AsyncFaultStore FaultStore",
            "batchlimit.testing.frozen": "FrozenLimits frozen_limits",
            "batchlimit.testing.switch": "Switch limiting_off limiting_on",
        },
    )

__all__ = [
    "AsyncFaultStore",
    "FaultStore",
    "FrozenLimits",
    "Rule",
    "Switch",
    "assert_limited",
    "check_store",
    "frozen_limits",
    "limiting_off",
    "limiting_on",
    "store_rules",
]
