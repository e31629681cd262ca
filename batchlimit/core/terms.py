"""What the bucket last told this host: on which terms the next ask goes out."""

from typing import Literal

from batchlimit.core.claim import Fetch
from batchlimit.core.lease import Grant

Fill = Literal["full", "share", "empty"]
"""How full a bucket begins anew whose state was lost: the whole burst, one host's share of it, or nothing."""


class Terms:
    """The bucket's version and epoch, its level and how many hosts share it, and how long an answer takes (s)."""

    __slots__ = ("_fill", "active_hosts", "epoch", "level", "round_trip", "version")

    def __init__(self, fill: Fill) -> None:
        self.version = self.epoch = self.level = 0
        self.active_hosts = 1
        self.round_trip = 0.0
        self._fill = fill

    def __repr__(self) -> str:
        return f"<Terms: epoch {self.epoch}, version {self.version}, level {self.level}, hosts {self.active_hosts}>"

    @property
    def fill(self) -> float:
        """The share of the burst at which a bucket begins anew."""
        match self._fill:
            case "full":
                return 1.0
            case "share":
                return 1.0 / self.active_hosts
            case "empty":
                return 0.0

    def learn(self, fetch: Fetch, grant: Grant, now: float) -> None:
        """Take in an answer that arrived at `now`; round trips are smoothed over about five."""
        self.version, self.epoch, self.level = grant.version, grant.epoch, grant.level
        self.active_hosts = max(1, grant.active_hosts)
        sample = now - fetch.sent
        self.round_trip += (sample - self.round_trip) * (0.2 if self.round_trip else 1.0)
