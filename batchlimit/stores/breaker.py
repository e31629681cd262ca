"""When a store is given up for a while: after a few failures in a row."""

import math

from batchlimit.errors import StoreUnavailable
from batchlimit.reservoir.statistics import Health

SOON = 10.0
"""Seconds: a breaker that opens again within them has relapsed. What answers probes alone is asked ever more rarely."""
THRESHOLD = 3
"""Failures in a row that open a breaker. One or two are a blip, and each costs its caller a deadline."""


class Breaker:
    """Counts the failures of one part of a store; open, it says that there is no use in asking. One answer closes it.

    Who asks now and then whether the part is back is the API's affair.
    """

    __slots__ = ("_closed", "error", "in_a_row", "probe_at", "relapses", "since")

    def __init__(self) -> None:
        self.in_a_row = 0
        self.relapses = 0  # how often it opened again soon after it had closed
        self._closed = -math.inf
        self.since: float | None = None  # when it opened
        self.error: StoreUnavailable | None = None  # what went wrong last
        self.probe_at = -math.inf  # when somebody asks next whether it is back, while it is open

    def __repr__(self) -> str:
        return f"<Breaker {'closed' if self.since is None else 'open'} after {self.in_a_row} failures in a row>"

    @property
    def is_failing(self) -> bool:
        """Whether this is more than one blip, so that nobody ought to wait for anything but an answer."""
        return self.in_a_row > 1

    def plan_probe(self, seconds: float, now: float) -> float:
        """Remember that the next probe is in so many seconds; return them."""
        self.probe_at = now + seconds
        return seconds

    def failed(self, error: StoreUnavailable, now: float) -> bool:
        """Count a failure; True if this one opened it."""
        self.in_a_row += 1
        self.error = error
        if self.since is not None or self.in_a_row < THRESHOLD:
            return False
        self.relapses = self.relapses + 1 if now - self._closed < SOON else 0
        self.since = now
        return True

    def answered(self, now: float) -> float | None:
        """Count an answer; if this one closed it, return for how many seconds it was open."""
        since, self.since = self.since, None
        self.in_a_row, self.error = 0, None
        if since is None:
            return None
        self._closed = now
        return now - since


class Breakers:
    """Those of all parts of one store, and what an operator is told of them. To be used by one thread at a time."""

    __slots__ = ("_failures", "_outages", "_parts")

    def __init__(self) -> None:
        self._parts: dict[str, Breaker] = {}
        self._failures = self._outages = 0

    def __repr__(self) -> str:
        return f"<Breakers {self._parts}>"

    def of(self, part: str) -> Breaker:
        """Return the breaker of a part; parts come and go with the nodes of a cluster, and are few."""
        return self._parts.get(part) or self._parts.setdefault(part, Breaker())

    def failed(self, part: str, error: StoreUnavailable, now: float) -> bool:
        """Count a failure; True if the part is given up from now on."""
        opened = self.of(part).failed(error, now)
        self._failures += 1
        self._outages += opened
        return opened

    def answered(self, part: str, now: float) -> float | None:
        """Count an answer, be it an error that says that the part works; see Breaker."""
        return self.of(part).answered(now)

    @property
    def health(self) -> Health:
        """How the store has been."""
        available = all(each.since is None for each in list(self._parts.values()))
        return Health(self._failures, self._outages, available)
