"""Buckets so full that no instance can be refused, whatever the others have leased: arithmetic decides there.

A bucket that every request asks ("plain") is compared with one that instances lease from. The leased one has the same
tokens, without those that are leased and not spent: at most half of the burst. Tokens that are spent and not yet
reported are missing from the plain one as well. A fair share is at least half of what is left. So where the plain one
has half of the burst and twice the cost, the leased one admits. Reservoirs decide any other key from then on. They stop
when its bucket would have been full for a while, or when the plain bucket is trusted to decide (see `trust`).
"""

import math
from collections.abc import Callable

from batchlimit.bucket.fair_share import ALPHA
from batchlimit.quota.quota import Quota

_IDLE = 15.0
"""Seconds beyond the filling of a bucket after which no instance knows its key any more."""
_STRETCH = 4.0
"""Seconds of a stretch; see `sample`."""


class Screen:
    """One key's plain bucket. Instants are seconds.

    Attributes:
        is_open: whether arithmetic decides. False: reservoirs do.
        is_sampled: whether reservoirs decide as well.
        count: requests of the present stretch.
        last: the instant of the last request.
    """

    __slots__ = (
        "_fills_in", "_first", "_level", "_levels", "_on_end", "_others", "_since",
        "count", "is_open", "is_sampled", "last",
    )  # fmt: skip

    def __init__(self, quota: Quota, now: float, on_end: Callable[["Screen"], None], *, is_exact: bool = False) -> None:
        """Begin full; `on_end` is called when a stretch ends, `is_exact` has reservoirs decide all requests."""
        bands = [(band.rate, float(band.burst), band.burst * ALPHA) for band in quota.bandwidths]
        self._first, self._others = bands[0], bands[1:]  # most quotas have one
        self._fills_in = math.inf if quota.denies_all or is_exact else max(b.burst / b.rate for b in quota.bandwidths)
        self._on_end = on_end
        self.is_open, self.is_sampled = self._fills_in < math.inf, False
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._level, self._levels = self._first[1], [burst for _, burst, _ in self._others]
        self.last = self._since = now
        self.count = 0

    def passes(self, now: float, cost: int) -> bool:
        """Charge a request that is certain to be admitted; False: reservoirs decide, now and from now on."""
        passed, self.last = now - self.last, now
        rate, burst, floor = self._first
        level = self._level + passed * rate
        if level > burst:
            level = burst
        self._level = level - cost
        if level < floor + 2 * cost or (self._others and not self._pass_others(passed, cost)):
            self._level += cost
            self.is_open = False
            return False
        self.count += 1
        if now - self._since > _STRETCH:
            self._on_end(self)
            self.count, self._since = 0, now
        return True

    def _pass_others(self, passed: float, cost: int) -> bool:
        """Charge the bandwidths after the first, all or none."""
        self._refill_others(passed)
        if any(level < floor + 2 * cost for level, (_, _, floor) in zip(self._levels, self._others, strict=True)):
            return False
        self._levels = [level - cost for level in self._levels]
        return True

    def spends(self, now: float, cost: int, pace: float = 1.0) -> bool:
        """Charge a request if the plain bucket has so many tokens; `pace`: of its refill (default 1)."""
        passed, self.last = (now - self.last) * pace, now
        rate, burst, _ = self._first
        level = self._level + passed * rate
        self._level = level if level < burst else burst
        if self._others:
            self._refill_others(passed)
        if self._level < cost or (self._others and min(self._levels) < cost):
            return False
        self.take_back(-cost)
        return True

    def _refill_others(self, passed: float) -> None:
        bands = zip(self._levels, self._others, strict=True)
        self._levels = [min(burst, level + passed * rate) for level, (rate, burst, _) in bands]

    def take_back(self, cost: int) -> None:
        """Return what was charged."""
        self._level += cost
        self._levels = [level + cost for level in self._levels]

    @property
    def levels(self) -> list[float]:
        """Tokens in each bandwidth."""
        return [self._level, *self._levels]

    @levels.setter
    def levels(self, found: list[float]) -> None:
        self._level, *self._levels = found

    def reopens(self, now: float) -> bool:
        """Whether arithmetic decides again, since nobody asked for so long."""
        passed = now - self.last
        self.spends(now, 0)
        if passed > self._fills_in + _IDLE:
            self._begin(now)
            self.is_open = True
        return self.is_open
