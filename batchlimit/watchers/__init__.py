"""What looks at the machine, and says when to back off."""

from typing import TYPE_CHECKING

from batchlimit.lazy import names

if TYPE_CHECKING:
    from batchlimit.watchers.base import Watcher
    from batchlimit.watchers.cpu import ThrottlingWatcher
    from batchlimit.watchers.latency import LatencyWatcher
    from batchlimit.watchers.loop import LoopLagWatcher
    from batchlimit.watchers.memory import MemoryWatcher
    from batchlimit.watchers.pressure import PressureWatcher
    from batchlimit.watchers.rounds import Rounds
    from batchlimit.watchers.threshold import Threshold
else:  # where __getattr__ would hide a name that there is not
    __getattr__, __dir__ = names(
        __name__,
        {
            "batchlimit.watchers.base": "Watcher",
            "batchlimit.watchers.cpu": "ThrottlingWatcher",
            "batchlimit.watchers.latency": "LatencyWatcher",
            "batchlimit.watchers.loop": "LoopLagWatcher",
            "batchlimit.watchers.memory": "MemoryWatcher",
            "batchlimit.watchers.pressure": "PressureWatcher",
            "batchlimit.watchers.rounds": "Rounds",
            "batchlimit.watchers.threshold": "Threshold",
        },
    )

__all__ = [
    "LatencyWatcher",
    "LoopLagWatcher",
    "MemoryWatcher",
    "PressureWatcher",
    "Rounds",
    "Threshold",
    "ThrottlingWatcher",
    "Watcher",
]
