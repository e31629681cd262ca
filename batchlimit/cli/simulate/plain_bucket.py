"""Where arithmetic decides a request in place of reservoirs, which take about 40 microseconds for it.

A fleet admits what one bucket would, but for the tokens that expire unspent at an instance: a percent or two where keys
are busy. So a ReplayBucket for each key decides.

CallSample. How often would limiters have asked the store? A key's requests within some seconds are one stretch. Those
of one quota that follow on a stretch with about as many requests are of one kind. Of each kind about one in a hundred
is decided by reservoirs as well, and their calls are counted.
"""

from collections import defaultdict
from collections.abc import Callable

from batchlimit.quota.quota import Quota

_STRETCH = 4.0
"""Seconds of a stretch: longer than two leases."""
_ROUNDING = 1e-3
"""Tokens that a request may be short of. Instants are doubles: half of a log at the pace of its quota was refused."""
Kind = tuple[Quota, int]
"""The quota of a stretch, and how many bits the number of requests of the one before has; 0: it is the first."""
_SAMPLED_OF_EACH = 200
"""Charges that are sampled of each kind, if there are as many."""
_ONE_OF = 100


class ReplayBucket:
    """A key's bucket as arithmetic has it, and the present stretch of its requests; it begins full."""

    __slots__ = (
        "_bands", "_begin", "_last", "_since", "count", "is_sampled", "key", "kind", "levels", "quota", "sampled_as",
    )  # fmt: skip

    def __init__(self, quota: Quota, now: float, begin: Callable[["ReplayBucket"], None], key: str = "") -> None:
        """`begin` is called when a stretch begins, with the count of the one before."""
        self.key, self.quota, self._begin = key, quota, begin
        self._bands = [(number, (band.rate, float(band.burst))) for number, band in enumerate(quota.bandwidths)]
        self.levels = [burst for _, (_, burst) in self._bands]  # tokens in each bandwidth
        self._last = self._since = now  # of the last request, and of the present stretch (s), which has so many
        self.count, self.kind = 0, (quota, 0)
        self.is_sampled = False  # whether reservoirs decide this stretch as well
        self.sampled_as: Kind | None = None  # the kind of the last stretch that was sampled, whose calls count
        begin(self)

    def spends(self, now: float, cost: int) -> bool:
        """Charge a request, if there are so many tokens."""
        passed, self._last = now - self._last, now
        levels, is_short = self.levels, False
        for number, (rate, burst) in self._bands:
            level = levels[number] + passed * rate
            levels[number] = level = level if level < burst else burst
            is_short = is_short or level < cost - _ROUNDING
        if now - self._since > _STRETCH:
            self._begin(self)
            self.count, self._since = 0, now
        self.count += 1
        if not is_short:
            self.take_back(-cost)
        return not is_short

    def take_back(self, cost: int) -> None:
        for number, _ in self._bands:
            self.levels[number] += cost


class CallSample:
    """Counts by kind of stretch."""

    def __init__(self) -> None:
        self._screened, self._sampled, self._calls = [defaultdict[Kind, int](int) for _ in range(3)]

    def begin(self, bucket: ReplayBucket) -> None:
        """End the stretch of a bucket, and begin another, which is sampled if there are too few of its kind."""
        self.settle(bucket)
        bucket.kind = kind = bucket.quota, bucket.count.bit_length()
        bucket.is_sampled = self._sampled[kind] < _SAMPLED_OF_EACH + self._screened[kind] // _ONE_OF
        if bucket.is_sampled:
            bucket.sampled_as = kind

    def call(self, kind: Kind | None) -> None:
        """Take note of a call of the store, which a sample of this kind has made."""
        if kind is not None:
            self._calls[kind] += 1

    def settle(self, bucket: ReplayBucket) -> None:
        (self._sampled if bucket.is_sampled else self._screened)[bucket.kind] += bucket.count

    @property
    def calls(self) -> int:
        """Calls that the charges without a reservoir would have made."""
        total, known = 0.0, [each for each, count in self._sampled.items() if count]
        for (quota, bits), count in self._screened.items():  # by the kind that was sampled and is most like it
            like = min(known, key=lambda each: (each[0] != quota, abs(each[1] - bits)), default=None)
            total += count if like is None else count * self._calls[like] / self._sampled[like]
        return round(total)
