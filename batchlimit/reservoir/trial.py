"""A quota on trial beside the one that holds: how much it would have refused of what was admitted."""

from batchlimit.quota.quota import Quota


class Trial:
    """Counts as if a bucket of this quota had decided, in this process: each instance has its share of it.

    The bucket in the store is not asked, and no hit counts: what was spent since the last count is taken for spread
    evenly over that time, and over the instances. So it is an estimate.
    """

    __slots__ = ("_at", "_levels", "quota", "refused")

    def __init__(self, quota: Quota, now: float) -> None:
        self.quota = quota
        self.refused = 0.0  # tokens that it would have refused
        self._at = now
        self._levels: list[float] | None = None  # of each bandwidth, of this instance's share; None: full

    def __repr__(self) -> str:
        return f"<Trial of {self.quota}: {self.refused:.0f} refused>"

    def count(self, spent: int, instances: int, now: float) -> int:
        """Count what was admitted since the last count; return how many whole tokens more it has refused now.

        Args:
            spent: tokens.
            instances: how many share the quota.
            now: the instance's clock.
        """
        elapsed, self._at = max(0.0, now - self._at), max(now, self._at)
        shares = [(each.rate / instances, each.burst / instances) for each in self.quota.bandwidths]
        levels = self._levels or [burst for _, burst in shares]
        rooms = [min(level, burst) + rate * elapsed for level, (rate, burst) in zip(levels, shares, strict=True)]
        admitted = max(0.0, min(float(spent), *rooms))
        self._levels = [min(burst, room - admitted) for room, (_, burst) in zip(rooms, shares, strict=True)]
        before, self.refused = int(self.refused), self.refused + spent - admitted
        return int(self.refused) - before

    def full_at(self, instances: int) -> float:
        """Return when (s) this instance's share is full, if nothing is spent: from then on nothing need be known."""
        if self._levels is None or self.quota.denies_all:
            return self._at
        missing = [
            (each.burst / instances - level) / (each.rate / instances)
            for level, each in zip(self._levels, self.quota.bandwidths, strict=True)
        ]
        return self._at + max(0.0, *missing)
