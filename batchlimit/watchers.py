"""Watchers of the machine: the public face of `batchlimit.concurrency.watchers`."""

from batchlimit.concurrency.watchers import (
    LatencyWatcher,
    LoopLagWatcher,
    MemoryWatcher,
    PressureWatcher,
    Rounds,
    Threshold,
    ThrottlingWatcher,
    Watcher,
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
