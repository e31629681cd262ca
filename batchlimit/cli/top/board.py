"""Samples of buckets in, rows out: what each key used and refused each second. It reads no clock and asks no store."""

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from batchlimit.bucket.state import BucketState, as_large, read_bucket
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.quota import Quota

FIELDS = "quota", "epoch", "level", "outstanding", "shares", "times", "used", "refused", "shadow", "q", "s", "l", "h"
"""What is read of a bucket: as much of one with a hundred instances as of one with a single instance."""
TREND = 20
"""Rates that a row remembers."""
_OVER = 3
"""Looks over which a rate is taken: instances report what they used once in a lease, which may outlast a look."""
_MOST = 20_000
"""Keys that a board remembers."""
_STALE = 30.0
"""Seconds after which a key is forgotten that was not seen again: the hottest are read at every look."""
_SECOND = 1_000_000


class BucketSample(NamedTuple):
    """A bucket at one instant."""

    key: str  # whose it is
    at: float  # when (seconds since 1970, by its server's clock)
    quota: Quota  # the one that it obeys
    level: float  # the least share of a burst that is there, 0 to 1
    held: int  # tokens that instances hold
    instances: int  # so many asked within the last second
    epoch: float  # when it began (as `at`)
    used: int  # tokens used since then, without those that are held
    refused: int  # tokens refused since then
    shadow: int = 0  # tokens admitted since then that a quota in shadow mode was to refuse


class Row(NamedTuple):
    """A key on the board."""

    key: str  # the key
    quota: str  # the quota that its bucket obeys, as text
    used: float  # tokens used each second
    refused: float  # tokens refused each second
    shadow: float  # tokens admitted each second that a quota in shadow mode, or on trial, was to refuse
    level: float  # the share of the burst that is there, 0 to 1
    held: int  # tokens that instances hold
    instances: int  # so many ask
    trend: tuple[float, ...]  # the last rates, the newest last
    is_average: bool  # it was seen once so far: the rates are averages since the bucket began


def sampled(key: str, fields: Mapping[str, str], now: float) -> BucketSample | None:
    """Return what the FIELDS of a bucket say at an instant; None if there is no bucket, or a damaged one."""
    try:
        state, whole = read_bucket(fields, now), as_large(fields)
        sharing, time = int(whole["shares"].split()[0]), int(whole["times"].split()[0]) / _SECOND
        began, level = int(whole["epoch"]) / _SECOND, level_of(state)
    except (BucketUnavailable, LookupError, ValueError, ZeroDivisionError):
        return None
    counts = max(0, state.used - state.outstanding), state.refused, state.shadow_refused
    active = sharing if state.age - time < 1.0 else 0
    return BucketSample(key, now, state.quota, level, state.outstanding, active, began, *counts)


def level_of(state: BucketState) -> float:
    """Return the least share of a burst that is there, 0 to 1."""
    shares = (level / band.burst for band, level in zip(state.quota.bandwidths, state.levels, strict=True))
    return max(0.0, min(shares))


class Board:
    """All keys that were seen, each with its last samples, and with the rates that it had, the newest last."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[deque[BucketSample], deque[float]]] = {}

    def take(self, samples: Iterable[BucketSample], gone: Iterable[str] = ()) -> None:
        """Take in what was read, and forget the keys whose buckets have gone. A bucket that began anew is a new one."""
        for key in gone:
            self._known.pop(key, None)
        newest = 0.0
        for sample in samples:
            newest = max(newest, sample.at)
            seen, trend = self._known.get(sample.key, (None, None))
            if seen is None or trend is None or seen[-1].epoch != sample.epoch:
                self._known[sample.key] = deque([sample], _OVER + 1), deque(maxlen=TREND)
            elif sample.at > seen[-1].at:
                seen.append(sample)
                trend.append(_rates(seen)[0])
        self._known = {key: each for key, each in self._known.items() if each[0][-1].at >= newest - _STALE}
        if len(self._known) > _MOST:
            self._known = {key: self._known[key] for key in self.hottest(_MOST // 2)}

    def rows(self) -> list[Row]:
        found = list[Row]()
        for seen, trend in self._known.values():
            last = seen[-1]
            now = last.level, last.held, last.instances
            found.append(Row(last.key, str(last.quota), *_rates(seen), *now, tuple(trend), is_average=len(seen) == 1))
        return found

    def hottest(self, count: int) -> list[str]:
        if count >= len(self._known):
            return list(self._known)
        heats = {key: sum(_rates(seen)) for key, (seen, _) in self._known.items()}
        return sorted(heats, key=lambda key: -heats[key] if math.isfinite(heats[key]) else 0.0)[:count]


def _rates(seen: Sequence[BucketSample]) -> tuple[float, float, float]:
    """Return what was used, refused and refused in shadow mode each second, over these samples or since the begin."""
    first, last = seen[0], seen[-1]
    if first is last:
        first, seconds = last._replace(used=0, refused=0, shadow=0), max(1.0, last.at - last.epoch)
    else:
        seconds = last.at - first.at
    used, refused, shadow = (max(0, new - old) / seconds for new, old in zip(last[-3:], first[-3:], strict=True))
    return used, refused, shadow
