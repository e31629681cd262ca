"""Buckets so full that no instance can be refused, whatever the others have leased: arithmetic decides there.

A bucket that every request asks ("plain") is compared with one that instances lease from. The leased one has the same
tokens but for those that are outstanding: at most half of the burst is held in reserve, and what is spent and not yet
reported was taken from the plain one as well. A fair share is at least half of what is left. So where the plain one
has half of the burst and twice the cost, the leased one admits. Any other key is decided by reservoirs, from then on
until its bucket would have been full for a while.
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
        levels: tokens in each bandwidth.
        count: requests of the present stretch.
        last: the instant of the last request.
    """

    __slots__ = ("_bands", "_fills_in", "_on_end", "_since", "count", "is_open", "is_sampled", "last", "levels")

    def __init__(self, quota: Quota, now: float, on_end: Callable[["Screen"], None], *, is_exact: bool = False) -> None:
        """Begin full.

        Args:
            quota: the key's.
            now: the instant.
            on_end: is called when a stretch ends.
            is_exact: whether reservoirs decide all requests (default False).
        """
        self._bands = [(band.rate, float(band.burst), band.burst * ALPHA) for band in quota.bandwidths]
        self._fills_in = math.inf if quota.denies_all or is_exact else max(b.burst / b.rate for b in quota.bandwidths)
        self._on_end = on_end
        self.is_open, self.is_sampled = self._fills_in < math.inf, False
        self._begin(now)

    def _begin(self, now: float) -> None:
        self.levels = [burst for _, burst, _ in self._bands]
        self.last = self._since = now
        self.count = 0

    def passes(self, now: float, cost: int) -> bool:
        """Charge a request that is certain to be admitted; False: reservoirs decide, now and from now on."""
        passed, self.last, levels, at = now - self.last, now, self.levels, 0
        for rate, burst, floor in self._bands:
            level = levels[at] + passed * rate
            if level > burst:
                level = burst
            levels[at] = level - cost
            if level < floor + 2 * cost:
                self._shut(at, cost)
                return False
            at += 1  # noqa: SIM113  enumerate() takes twice as long
        self.count += 1
        if now - self._since > _STRETCH:
            self._on_end(self)
            self.count, self._since = 0, now
        return True

    def _shut(self, last: int, cost: int) -> None:
        """Let reservoirs decide; what was charged to the bandwidths up to this one goes back."""
        for at in range(last + 1):
            self.levels[at] += cost
        self.is_open = False

    def take_back(self, cost: int) -> None:
        """Return what was charged."""
        self.levels = [level + cost for level in self.levels]

    def reopens(self, now: float) -> bool:
        """Whether arithmetic decides again, since nobody asked for so long."""
        passed, self.last = now - self.last, now
        if passed > self._fills_in + _IDLE:
            self._begin(now)
            self.is_open = True
        return self.is_open
