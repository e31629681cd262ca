"""The circuit breaker of a store: it opens after a few consecutive failures, and closes with the next answer."""

import math

from batchlimit.base.histogram import Durations
from batchlimit.errors import StoreUnavailable
from batchlimit.reservoir.statistics import Health

SOON = 10.0
"""Seconds. A breaker that opens again sooner has relapsed: each relapse doubles the pause before the first probe."""
THRESHOLD = 3
"""Consecutive failures that open a breaker. Each of them costs its caller a deadline."""


class Breaker:
    """Counts the failures of one part of a store: THRESHOLD consecutive ones open it, and one answer closes it.

    While it is open, no call is sent to the part. The guarded store of each API sends probes (see `outage.py`).
    """

    __slots__ = ("_closed", "consecutive_failures", "error", "opened_at", "probe_at", "relapses")

    def __init__(self) -> None:
        self.consecutive_failures = 0
        self.relapses = 0  # how often it opened again soon after it had closed
        self._closed = -math.inf
        self.opened_at: float | None = None  # when it opened
        self.error: StoreUnavailable | None = None  # of the last failure
        self.probe_at = -math.inf  # while it is open: when the next probe is due

    def __repr__(self) -> str:
        state = "closed" if self.opened_at is None else "open"
        return f"<Breaker {state} after {self.consecutive_failures} consecutive failures>"

    @property
    def is_failing(self) -> bool:
        """Whether at least two calls failed in a row: then no call waits for a connection."""
        return self.consecutive_failures > 1

    def plan_probe(self, seconds: float, now: float) -> float:
        """Note that the next probe is due in so many seconds; return them."""
        self.probe_at = now + seconds
        return seconds

    def failed(self, error: StoreUnavailable, now: float) -> bool:
        """Count a failure; True if this one opened it."""
        self.consecutive_failures += 1
        self.error = error
        if self.opened_at is not None or self.consecutive_failures < THRESHOLD:
            return False
        self.relapses = self.relapses + 1 if now - self._closed < SOON else 0
        self.opened_at = now
        return True

    def answered(self, now: float) -> float | None:
        """Count an answer; if this one closed it, return for how many seconds it was open."""
        opened_at, self.opened_at = self.opened_at, None
        self.consecutive_failures, self.error = 0, None
        if opened_at is None:
            return None
        self._closed = now
        return now - opened_at


class _ByPart(dict[str, Breaker]):
    def __missing__(self, part: str) -> Breaker:
        return self.setdefault(part, Breaker())


class Breakers:
    """The circuit breakers of all parts of one store, and their statistics. One thread at a time may change them.

    `of[part]` is the breaker of a part, such as a node of a cluster: parts are few.
    """

    __slots__ = ("_durations", "_failures", "_outages", "of", "took")

    def __init__(self) -> None:
        self.of: dict[str, Breaker] = _ByPart()
        self._failures = self._outages = 0
        self._durations = Durations()
        self.took = self._durations.add
        """Counts how long (s) a call took."""

    def __repr__(self) -> str:
        return f"<Breakers {dict(self.of)}>"

    def failed(self, part: str, error: StoreUnavailable, now: float) -> bool:
        """Count a failure; True if it opened the breaker of the part."""
        opened = self.of[part].failed(error, now)
        self._failures += 1
        self._outages += opened
        return opened

    def answered(self, part: str, now: float) -> float | None:
        """Count an answer; an error that shows that the part works is one too. See Breaker.answered."""
        return self.of[part].answered(now)

    @property
    def health(self) -> Health:
        """How the store has been."""
        available = all(each.opened_at is None for each in list(self.of.values()))
        return Health(self._failures, self._outages, available, self._durations.read())
