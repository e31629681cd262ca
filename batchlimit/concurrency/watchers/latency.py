"""Watchers of what calls and event loops wait for."""

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable

from batchlimit.base.setting import between, of_kind
from batchlimit.concurrency.watchers.watcher import Threshold

_WHOLE = 1_000_000
"""What a percentile is counted in: as a whole number, 0.95 of 20 calls are 19, and not a hair more."""


class LatencyWatcher:
    """Sees that a percentile of the calls since the last poll took longer than a target.

    The limiter tells it of each call by `observe`, one at a time. A period without calls tells nothing. In a period of
    few calls, a single slow one is enough.

    Args:
        target: How long calls may take (seconds, default 0.5).
        percentile: Which share of the calls has to keep the target (above 0, at most 1, default 0.95).

    Raises:
        TypeError, ValueError: An argument is no number in its range.

    Example:
        >>> from batchlimit.watchers import LatencyWatcher
        >>> watcher = LatencyWatcher(target=0.5)
        >>> watcher.observe(700_000_000)
        >>> watcher.poll()
        'latency: 1 of 1 calls took over 0.5 s, 0.05 may'
    """

    __slots__ = ("_before", "_calls", "_millionths", "_slow", "_target_ns", "percentile", "target")

    name = "latency"

    def __init__(self, target: float = 0.5, percentile: float = 0.95) -> None:
        self.target = between("target (seconds)", target, 0.0, math.inf, "()")
        self.percentile = between("percentile", percentile, 0.0, 1.0, "(]")
        self._target_ns = self.target * 1e9
        self._millionths = round(self.percentile * _WHOLE)
        self._calls = self._slow = 0
        self._before = (0, 0)

    def __repr__(self) -> str:
        return f"<LatencyWatcher: {self._slow} of {self._calls} calls took over {self.target:g} s>"

    def observe(self, rtt_ns: int) -> None:
        """Count a call that ended.

        Args:
            rtt_ns: How long it took (ns).
        """
        if rtt_ns > self._target_ns:
            self._slow += 1
        self._calls += 1

    def poll(self) -> str | None:
        """Return a reason to back off if too many calls since the last poll were slow."""
        # The slow ones first: read the other way round, one that ends just now would be slow, and no call.
        slow, calls = self._slow, self._calls
        before, self._before = self._before, (slow, calls)
        slow, calls = slow - before[0], calls - before[1]
        if (calls - slow) * _WHOLE >= self._millionths * calls:
            return None
        return f"latency: {slow} of {calls} calls took over {self.target:g} s, {1 - self.percentile:.2g} may"


class _Probe(threading.Event):
    """A call that a loop is asked to make, set when it made it: when it was asked, and when it made it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock, self.asked = clock, clock()
        self.came: float | None = None

    def __call__(self) -> None:
        self.came = self._clock()
        self.set()


class LoopLagWatcher:
    """Sees that an event loop takes long to run a call that is due now: its tasks wait as long, each time.

    A poll, from another thread than the loop's, has it run one call and waits for that. It sees a loop that is behind
    most of the time, and by chance one that stalls now and then. A loop that does not run, or was closed, does not lag.

    Args:
        loop: The event loop (None, the default: the one that runs here).
        threshold: From this lag on it is an event (seconds, default 0.1).
        patience: How long a poll waits for the loop (seconds, default 1.0).
        clock: Returns seconds (default `time.monotonic`).
        wait: Waits for an event for some seconds, and returns whether it was set (default `threading.Event.wait`).

    Raises:
        TypeError, ValueError: `loop` is no event loop, or a time no number above 0.
        RuntimeError: No loop was given, and none runs here.

    Example:
        >>> from batchlimit import AsyncConcurrencyLimiter
        >>> from batchlimit.watchers import LoopLagWatcher
        >>> async with AsyncConcurrencyLimiter(watchers=[LoopLagWatcher(threshold=0.2)], every=10.0) as limiter:
        ...     limiter.limit
        20
    """

    __slots__ = ("_clock", "_loop", "_patience", "_pid", "_probe", "_threshold", "_wait")

    name = "loop"

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop | None = None,
        threshold: float = 0.1,
        *,
        patience: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        of_kind("loop", loop, asyncio.AbstractEventLoop | None, "an event loop")
        self._threshold = Threshold(threshold)
        self._patience = min(between("patience (seconds)", patience, 0.0, math.inf, "()"), threading.TIMEOUT_MAX)
        self._loop = asyncio.get_running_loop() if loop is None else loop
        self._pid = os.getpid()
        self._probe: _Probe | None = None
        self._clock = clock
        self._wait = wait

    def __repr__(self) -> str:
        return f"<LoopLagWatcher of {self._loop!r}: {self._threshold!r}>"

    def poll(self) -> str | None:
        """Return a reason to back off if the loop lags; RuntimeError in the thread of that loop."""
        if asyncio._get_running_loop() is self._loop:
            raise RuntimeError("a loop cannot watch its own lag: poll from another thread")
        if not self._runs():
            self._probe = None
            return None
        probe = self._probe  # the call that the loop still owes
        if probe is None or probe.is_set():
            self._probe, probe = None, _Probe(self._clock)
            try:
                self._loop.call_soon_threadsafe(probe)
            except RuntimeError:  # it was closed just now
                return None
            self._probe = probe
        if not self._wait(probe, self._patience) and not self._runs():  # it ended, and owes nothing any more
            self._probe = None
            return None
        lag = (self._clock() if probe.came is None else probe.came) - probe.asked
        if not self._threshold.update(lag):
            return None
        return f"loop lagged for {lag:.3f} s" + ("" if probe.is_set() else " so far")

    def _runs(self) -> bool:
        """Whether somebody turns the loop; a forked child has a loop that says so, but its parent does."""
        return self._pid == os.getpid() and self._loop.is_running()
