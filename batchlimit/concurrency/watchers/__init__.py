"""Watchers of the machine: each looks at one thing, and says when to back off."""

from typing import TYPE_CHECKING

from batchlimit.base.lazy import names

if TYPE_CHECKING:
    from batchlimit.concurrency.watchers.cpu import ProcessorWatcher, ThrottlingWatcher
    from batchlimit.concurrency.watchers.latency import LatencyWatcher, LoopLagWatcher
    from batchlimit.concurrency.watchers.pressure import MemoryWatcher, PressureWatcher
    from batchlimit.concurrency.watchers.rounds import Rounds
    from batchlimit.concurrency.watchers.watcher import Threshold, Watcher
else:  # where __getattr__ would hide a name that there is not
    __getattr__, __dir__ = names(
        __name__,
        {
            "batchlimit.concurrency.watchers.watcher": "Threshold Watcher",
            "batchlimit.concurrency.watchers.cpu": "ProcessorWatcher ThrottlingWatcher",
            "batchlimit.concurrency.watchers.latency": "LatencyWatcher LoopLagWatcher",
            "batchlimit.concurrency.watchers.pressure": "MemoryWatcher PressureWatcher",
            "batchlimit.concurrency.watchers.rounds": "Rounds",
        },
    )

__all__ = [
    "LatencyWatcher", "LoopLagWatcher", "MemoryWatcher", "PressureWatcher", "ProcessorWatcher", "Rounds", "Threshold",
    "ThrottlingWatcher", "Watcher",
]  # fmt: skip
