"""Where arithmetic decides a request in place of reservoirs, which take about 40 microseconds for it.

Screen. A bucket that every request asks ("plain") is compared with one that instances lease from. The leased one has
the same tokens, without those that are leased and not spent: at most half of the burst. Tokens that are spent and not
yet reported are missing from the plain one as well. A fair share is at least half of what is left. So where the plain
one has half of the burst and twice the cost, the leased one admits, whatever the other instances have leased.
Reservoirs decide any other key from then on. They stop when its bucket would have been full for a while, or when the
plain bucket is trusted to decide.

BucketTrust. Reservoirs admit less than a plain bucket by the tokens that expire unspent or cannot be refilled. Where
those are few in a window, the plain bucket decides the next windows, refusals included, and refills slower by as much.
It does so as long as about as many requests come. Where a burst is small for so many instances, much is wasted, and
reservoirs decide on.

CallSample. How often would limiters have asked the store for what a Screen decided? A key's requests within some
seconds are one stretch. Stretches with about as many requests are of one kind. Of each kind about one in a hundred is
decided by reservoirs as well, and their calls are counted.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from batchlimit.bucket.fair_share import ALPHA
from batchlimit.quota.quota import Quota

_IDLE = 15.0
"""Seconds beyond the filling of a bucket after which no instance knows its key any more."""
_STRETCH = 4.0
"""Seconds of a stretch; see CallSample."""


@dataclass(slots=True)
class _Band:
    """A bandwidth of a plain bucket."""

    rate: float
    burst: float
    floor: float  # with so many tokens, and twice the cost, the leased bucket admits
    level: float = 0.0  # its tokens


class Screen:
    """A key and its plain bucket. Arithmetic decides where it `is_open`; reservoirs too if a stretch `is_sampled`."""

    __slots__ = (
        "_bands", "_fills_in", "_on_end", "_since",
        "count", "is_open", "is_sampled", "key", "kind", "last", "quota", "trust",
    )  # fmt: skip

    def __init__(
        self, quota: Quota, now: float, on_end: Callable[["Screen"], None], key: str = "", *, is_exact: bool = False
    ) -> None:
        """Begin full; `on_end` is called when a stretch ends, `is_exact` has reservoirs decide all requests."""
        self.key, self.quota, self.trust = key, quota, BucketTrust()
        self.kind: int | None = None  # of the last stretch that was sampled, whose calls of the store count
        self._bands = [_Band(band.rate, float(band.burst), band.burst * ALPHA) for band in quota.bandwidths]
        self._fills_in = math.inf if quota.denies_all or is_exact else max(b.burst / b.rate for b in quota.bandwidths)
        self._on_end = on_end
        self.is_open, self.is_sampled = self._fills_in < math.inf, False
        self._begin(now)

    def _begin(self, now: float) -> None:
        self.levels = [band.burst for band in self._bands]
        self.last = self._since = now  # of the last request, and of the present stretch (s), which has so many
        self.count = 0

    def passes(self, now: float, cost: int) -> bool:
        """Charge a request that is certain to be admitted; False: reservoirs decide, now and from now on."""
        self._refill(now)
        for band in self._bands:
            if band.level < band.floor + 2 * cost:
                self.is_open = False
                return False
        for band in self._bands:
            band.level -= cost
        self.count += 1
        if now - self._since > _STRETCH:
            self._on_end(self)
            self.count, self._since = 0, now
        return True

    def spends(self, now: float, cost: int, pace: float = 1.0) -> bool:
        """Charge a request if the plain bucket has so many tokens; `pace`: of its refill (default 1)."""
        self._refill(now, pace)
        if any(band.level < cost for band in self._bands):
            return False
        self.take_back(-cost)
        return True

    def _refill(self, now: float, pace: float = 1.0) -> None:
        passed, self.last = (now - self.last) * pace, now
        for band in self._bands:
            level = band.level + passed * band.rate
            band.level = level if level < band.burst else band.burst

    def take_back(self, cost: int) -> None:
        """Return what was charged."""
        for band in self._bands:
            band.level += cost

    @property
    def levels(self) -> list[float]:
        """Tokens in each bandwidth."""
        return [band.level for band in self._bands]

    @levels.setter
    def levels(self, found: list[float]) -> None:
        for band, level in zip(self._bands, found, strict=True):
            band.level = level

    def reopens(self, now: float) -> bool:
        """Whether arithmetic decides again, since nobody asked for so long."""
        passed = now - self.last
        self._refill(now)
        if passed > self._fills_in + _IDLE:
            self._begin(now)
            self.is_open = True
        return self.is_open


_WINDOW = 4.0
"""Of a window at least: longer than two leases."""
_ADMITTED = 100
"""Requests that reservoirs admit in a window at least."""
_WASTE = 0.01
"""The share of the tokens that may be wasted."""
_WINDOWS = 12
"""Trust ends after so many windows."""
_ALIKE = 1.5
"""With so many times more or fewer requests in a window, trust ends."""


class BucketTrust:
    """What is known of one key. Before `until` (s) the plain bucket decides; -inf: reservoirs do."""

    __slots__ = (
        "_admitted", "_asked", "_begun", "_left", "_length", "_plain", "called", "calls", "count", "pace", "until",
    )  # fmt: skip

    def __init__(self) -> None:
        self.pace = 1.0  # of the refill of the plain bucket, as a share of its rate
        self.count = 0  # requests of the present window that the plain bucket decided
        self.calls = 0.0  # of the store that reservoirs would have made for those of the windows before
        self._left = self._asked = self.called = 0
        self._length = 0.0
        self.begin(math.inf)

    def begin(self, now: float) -> None:
        """Begin a window in which reservoirs decide."""
        self.settle()
        self.until, self._begun = -math.inf, now
        self._asked = self._admitted = self._plain = self.called = 0

    def add(self, admitted: int, plain: int) -> None:
        """Take note of tokens that reservoirs admitted, and the plain bucket would have."""
        self._asked += 1
        self._admitted += admitted
        self._plain += plain

    def is_due(self, now: float) -> bool:
        """Whether the window is long enough."""
        return self._admitted >= _ADMITTED and now - self._begun >= _WINDOW

    def judge(self, now: float, more: float) -> None:
        """Trust the plain bucket, or begin another window; `more`: tokens that it has less than limiters and store."""
        wasted = max(0.0, (self._plain - self._admitted - more) / self._admitted)
        if wasted > _WASTE:
            self.begin(now)
            return
        self.pace, self._left, self._length = 1.0 - wasted, _WINDOWS, now - self._begun
        self.until = now + self._length

    def lasts(self, now: float) -> bool:
        """Whether the plain bucket decides the next window as well, since one has ended."""
        is_alike = self._asked / _ALIKE <= self.count <= self._asked * _ALIKE
        self.settle()
        self._left -= 1
        if is_alike and self._left:
            self.until = now + self._length
        return is_alike and self._left > 0

    def settle(self) -> None:
        """Count the calls of the present window, which ends."""
        if self.count:
            self.calls += self.count * self.called / self._asked
        self.count = 0


_SAMPLED_OF_EACH = 200
"""Charges that are sampled of each kind, if there are as many."""
_ONE_OF = 100


class CallSample:
    """Counts by kind of stretch."""

    def __init__(self) -> None:
        self._screened, self._sampled, self._calls = [defaultdict[int, int](int) for _ in range(3)]

    def begin(self, screen: Screen) -> None:
        """Sample the stretch that begins, if one of as many requests as the last one of this key is to be sampled."""
        kind = screen.count.bit_length()
        screen.is_sampled = self._sampled[kind] < _SAMPLED_OF_EACH + self._screened[kind] // _ONE_OF
        if screen.is_sampled:
            screen.kind = kind

    def call(self, kind: int | None) -> None:
        """Take note of a call of the store, which a sample of this kind has made."""
        if kind is not None:
            self._calls[kind] += 1

    def settle(self, screen: Screen) -> None:
        """Take note of a stretch that has ended: arithmetic decided it, and reservoirs as well if it was sampled."""
        if screen.is_sampled and screen.kind is not None:
            self._sampled[screen.kind] += screen.count
        else:
            self._screened[screen.count.bit_length()] += screen.count

    @property
    def calls(self) -> int:
        """Calls that the charges without a reservoir would have made."""
        return round(sum(count * self._share(kind) for kind, count in self._screened.items()))

    def _share(self, kind: int) -> float:
        """Return the calls of a charge, by the kind that was sampled and is most like this one."""
        known = [each for each, count in self._sampled.items() if count]
        if not known:
            return 1.0
        like = min(known, key=lambda each: abs(each - kind))
        return self._calls[like] / self._sampled[like]
