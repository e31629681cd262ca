"""What looks at the machine, and says when to back off."""

from batchlimit.watchers.base import Watcher
from batchlimit.watchers.cpu import ThrottlingWatcher
from batchlimit.watchers.latency import LatencyWatcher
from batchlimit.watchers.loop import LoopLagWatcher
from batchlimit.watchers.memory import MemoryWatcher
from batchlimit.watchers.pressure import PressureWatcher
from batchlimit.watchers.rounds import Rounds
from batchlimit.watchers.threshold import Threshold

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
