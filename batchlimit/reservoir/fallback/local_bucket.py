"""What an instance grants itself of one key while the store is away."""

import math
from typing import NamedTuple

from batchlimit.quota.failure_policy import FailurePolicy
from batchlimit.quota.quota import Quota

LEASE = 0.5
"""Seconds that such a grant lasts: so soon does a key find out that the store is back."""

_DUST = 1e-9
"""Tokens that rounding may lose: 4.999999999 are five."""
_TICK = 1e-6
"""Seconds on top of a wait, so that what was waited for is there at its end, and nobody asks a moment too early."""


class Wish(NamedTuple):
    """What the callers of a key need: `first` in line, all in line (`queued`), and those expected (`more`); tokens."""

    first: int
    queued: int
    more: int


class OpenBucket:
    """Admits everything."""

    def __init__(self, quota: Quota) -> None:
        self._plenty = quota.largest_cost

    def grant(self, wish: Wish, now: float) -> tuple[int, float]:
        """Return (tokens, 0.0 s): what is wanted, and a burst on top, so that it lasts."""
        return max(wish.queued, wish.more) + self._plenty, 0.0

    def put_back(self, tokens: int, now: float) -> None:
        """There is no less of it."""

    def fits_in(self, tokens: int, now: float) -> float:
        """Return 0.0: everything is there."""
        return 0.0

    def level(self, now: float) -> int:
        """Return one burst: more than that nobody can ask for at once."""
        return self._plenty

    def full_at(self) -> float:
        """Return the distant past: to forget this one, and to begin anew, mints nothing."""
        return -math.inf


class LocalBucket:
    """A token bucket of this process alone, with rate / instances and burst / instances of a quota.

    It begins with its share of `known`, the level that the bucket in the store last had: all instances together begin
    with that level, and not with a burst. Of a quota with several bandwidths only the lowest level is known, so all
    bandwidths begin with it.

    A cost above the share of the burst is admitted when the share is full, and leaves the level below 0. Otherwise it
    would never be admitted. The rate is kept.
    """

    __slots__ = ("_at", "_bands", "_levels")

    def __init__(self, quota: Quota, instances: int, known: float, now: float) -> None:
        self._bands = [(each.rate / instances, each.burst / instances) for each in quota.bandwidths]
        self._levels = [min(burst, known / instances) for _, burst in self._bands]
        self._at = now

    def __repr__(self) -> str:
        return f"<LocalBucket with {self._levels} at {self._at:.3f}>"

    def grant(self, wish: Wish, now: float) -> tuple[int, float]:
        """Return (tokens, seconds): how many may be spent, or 0 and when what the first one needs may fit."""
        self._levels, self._at = self._refilled(now), max(now, self._at)
        if (wait := self._wait(wish.first)) > 0.0:
            return 0, wait
        tokens = max(wish.first, min(wish.queued + wish.more, math.floor(min(self._levels) + _DUST)))
        self._levels = [level - tokens for level in self._levels]
        return tokens, 0.0

    def _wait(self, need: int) -> float:
        """Return when (s) all bandwidths have `need`, or are full; 0.0: now."""
        pairs = zip(self._bands, self._levels, strict=True)
        missing = [(min(need, burst) - level, rate) for (rate, burst), level in pairs]
        return max(tokens / rate + _TICK if tokens > _DUST else 0.0 for tokens, rate in missing)

    def fits_in(self, tokens: int, now: float) -> float:
        """Return in how many seconds so many are there, or as many as there can be."""
        return max(0.0, self._wait(tokens) + self._at - now)

    def put_back(self, tokens: int, now: float) -> None:
        """Take back what was granted, or refunded, and not used, as far as there is room."""
        pairs = zip(self._bands, self._refilled(now), strict=True)
        self._levels, self._at = [min(burst, level + tokens) for (_, burst), level in pairs], max(now, self._at)

    def level(self, now: float) -> int:
        """Return the whole tokens of the lowest bandwidth; changes nothing, so that it may be read without a lock."""
        return math.floor(min(self._refilled(now)) + _DUST)

    def full_at(self) -> float:
        """Return when all bandwidths are full, if nothing is granted."""
        pairs = zip(self._bands, self._levels, strict=True)
        return self._at + max((burst - level) / rate for (rate, burst), level in pairs)

    def _refilled(self, now: float) -> list[float]:
        elapsed = max(0.0, now - self._at)
        pairs = zip(self._bands, self._levels, strict=True)
        return [min(burst, level + rate * elapsed) for (rate, burst), level in pairs]


FallbackBucket = OpenBucket | LocalBucket
"""What stands in for the bucket."""


def fallback(policy: FailurePolicy, quota: Quota, instances: int, known: float, now: float) -> FallbackBucket | None:
    """Return what stands in for a bucket with `known` tokens, shared by `instances` (0: never told); or nothing."""
    match policy.kind:
        case "closed":
            return None
        case "open":
            return OpenBucket(quota)
        case "local":
            instances = max(instances, policy.instances or 0)
            return LocalBucket(quota, instances, known, now) if instances else None
