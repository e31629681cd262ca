"""The clock of a process: it goes on while the machine sleeps, as the clock of the store does."""

import time
from collections.abc import Callable
from functools import partial

# A lease must not outlive a suspended machine. Linux counts sleep in CLOCK_BOOTTIME alone, macOS in CLOCK_MONOTONIC;
# time.monotonic stands still meanwhile on both. Measured: 59 ns a call, time.monotonic 44, a function of our own 82.
steady: Callable[[], float] = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""Seconds since the machine was started; never runs backwards."""
steady_ns: Callable[[], int] = partial(time.clock_gettime_ns, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""The same in nanoseconds."""
