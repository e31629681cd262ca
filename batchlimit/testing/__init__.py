"""For tests of what is limited: limiters without a server, in time that a test moves.

The fixtures of `batchlimit.testing.plugin` are there wherever pytest and batchlimit are installed.
"""

from typing import TYPE_CHECKING

from batchlimit.lazy import names

if TYPE_CHECKING:
    from batchlimit.testing.frozen import FrozenLimits, frozen_limits
else:  # where __getattr__ would hide a name that there is not
    __getattr__, __dir__ = names(__name__, {"batchlimit.testing.frozen": "FrozenLimits frozen_limits"})

__all__ = ["FrozenLimits", "frozen_limits"]
