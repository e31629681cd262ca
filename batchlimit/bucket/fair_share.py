"""How a bucket divides itself: the bandwidths of a quota in microseconds, and one instance's fair share of each."""

import math
from typing import NamedTuple

from batchlimit.quota.quota import Quota

# What the scripts call by the same names; tests/lua holds them equal. Microseconds.
ALPHA = 0.5
"""The share of a bucket that all instances together may hold in reserve; the rest stays for whoever comes."""
LEASABLE = 3
"""An instance that may hold fewer tokens than these in reserve spends instead of leasing."""
LEASE = 1_000_000
"""The longest lease while the bucket is poor, but for an instance whose answers take long."""
RICH = 1_500_000
"""The longest lease while it is rich: while more than ALPHA of it is left."""
SHORTEST = 20_000
"""The shortest lease."""
WAITING = 250_000
"""The longest lease of tokens for who waits: a busy machine has woken them by then."""
UNKNOWN = 100_000
"""The shortest lease of an instance that does not know yet how long an answer takes."""
CRUMB = 0.01
"""A spend counts until this part of a token is refilled, if that is later than its lease: a stall loses no token."""
LATE = 2_000_000
"""But no longer than this."""
SLOWEST = 2_000_000
"""The longest round trip that a lease makes up for."""
ACTIVE = 1_000_000
"""An instance that asked within this time has a share."""
PACE = 50_000
"""The shortest spacing of one instance's asks at a dry bucket, if that is no more than a fifth of what it fills in,"""
LONG_PACE = 200_000
"""and the longest: where many instances share it, or the rate is low."""
LAST = 600_000
"""An instance that is alone takes all that is left, if that is refilled within this time: three times LONG_PACE."""
SWEEP = 500
"""The spacing of two looks at all instances, for each of them."""
SETTLES = 4_000_000
"""For so long after a pause it is remembered."""
SOONEST = 20_000
"""The pace just after a pause, if that is shorter,"""
LATER = 0.05
"""and by how much of the time since then it becomes longer."""
BATCH = 25
"""How many tokens an instance accrues between two asks at a dry bucket, if that is not too long."""
OVER = 8_000_000
"""A lease is over so long after the bucket changed last,"""
QUIET = 10_000_000
"""and no instance asks any more that did not ask within this time."""
MARGIN = 5_000_000
"""How much longer than needed an untouched bucket is kept: longer than any lease."""
LONGEST = 315_360_000_000_000
"""Ten years: what is longer might overflow a clock or an integer."""

SILENT = 60_000_000
"""A rank counts for so long after an instance that has it was heard."""
HEARD = SILENT // 8
"""The first ask of an instance in each such time tells that its rank is heard still."""
FAR = 2**49
"""A quota by rules of the store is so much younger than any other: scripts without ranks obey it. Eighteen years."""
REMEMBERED = 30_000_000
"""How long a refund is known, should a client send it again after a lost answer."""


class Band(NamedTuple):
    """One bandwidth: tokens per us, and the burst in tokens."""

    rate: float
    burst: int


def bands_of(quota: Quota) -> list[Band]:
    """Return the quota's bandwidths in the unit in which the scripts count."""
    return [Band(bandwidth.rate / 1_000_000, bandwidth.burst) for bandwidth in quota.bandwidths]


def quickest(bands: list[Band]) -> int:
    """Return which bandwidth fills fastest: the one that a pause lowers."""
    return min(range(len(bands)), key=lambda i: bands[i].burst / bands[i].rate)


def lease_of(bands: list[Band]) -> int:
    """Return how long a lease lasts (us) while the bucket is poor: a small part of the refill time."""
    return max(SHORTEST, int(min(min(LEASE, 0.4 * band.burst / band.rate) for band in bands)))


def lease_for_trip(lease: int, trip: int) -> int:
    """Return `lease` (us), or more for an instance whose round `trip` (us; 0: unknown) would leave it none of that."""
    return max(lease, UNKNOWN if trip == 0 else max(2 * trip, min(4 * trip, UNKNOWN)))


def lease_of_grant(each: list[tuple[Band, float]], granted: int, trip: int, *, waits: bool, is_later: bool) -> int:
    """Return how long a grant lasts (us): shorter where all of it is for callers who wait now, longer in a rich bucket.

    It is of bandwidths with `each` its level before the grant, to an instance with a round `trip` (us; 0: unknown).
    """
    lease = lease_of([band for band, _ in each])
    if is_later:
        lease = max(lease, UNKNOWN)
    elif waits and granted > 0:
        lease = min(lease, WAITING)
    elif all(level >= ALPHA * band.burst for band, level in each):  # most of the refill time
        lease = max(lease, int(min(min(RICH, 0.75 * band.burst / band.rate) for band, _ in each)))
    return lease_for_trip(lease, trip)


def lease_of_spend(bands: list[Band], lease: int) -> int:
    """Return how long (us) a caller may be admitted by a spend: as long as a lease, or while next to nothing flows."""
    return max(lease, min(LATE, *(math.floor(CRUMB / band.rate) for band in bands)))


def pace_of(bands: list[Band], active: int) -> float:
    """Return how far apart one instance's asks are at an empty bucket (us): the more instances, the rarer each asks."""
    return min(min(max(PACE, BATCH * active / band.rate), LONG_PACE, 0.2 * band.burst / band.rate) for band in bands)


class Claims(NamedTuple):
    """An instance's weight and the sum of all; when it was last served (us), and the weighted sum of those."""

    weight: int
    weights: int
    last: int
    lasts: int


def division(
    band: Band, level: float, claims: Claims, now: int, need: int, is_spent: bool
) -> tuple[float, float, float]:
    """Return (part, mine, fair): the instance's part of the rate, what it accrued, and what it may take without harm.

    Each active instance accrues its part, by its weight, from when it was last served. An instance may take the larger
    of two amounts: what it accrued, and what is left in the bucket once all that the others accrued is set aside. Half
    of the level is for every instance that asks. `lasts` is a sum over all instances: no loop adds up the others. Where
    it `is_spent`, nothing is set aside from a need: as in a plain bucket.
    """
    weight, weights, last, lasts = claims
    part = weight / weights
    mine = min(band.rate * part * (now - last), max(band.burst * part, need))
    waited = (weights - weight) * now - (lasts - weight * last)
    others = math.floor(min(band.rate / weights * waited, ALPHA * level))
    return part, mine, max(mine, level - max(0, others), min(need, level) if is_spent else mine)


def spends(bands: list[Band], claims: Claims) -> bool:
    """Return whether too little can be leased to this instance: what it is granted at once is spent then."""
    return min(ALPHA * band.burst * claims.weight / claims.weights for band in bands) < LEASABLE


def rounded(wait: float) -> int:
    """Return whole us, one more than needed: a rounding error must never make it too early."""
    return math.ceil(min(wait, LONGEST)) + 1


def waits_for(need: int, band: Band, level: float, part: float, fair: float) -> tuple[float, float]:
    """Return after how many us `need` fits this instance's share, and after how many it fits whatever is set aside."""
    share, aside = (need - fair) / (band.rate * part), ((need - 1) / (1 - ALPHA) + 1 - level) / band.rate
    return max((need - level) / band.rate, share), min(share, aside)


def ahead_of(band: Band, level: float, part: float, mine: float, held: int, outstanding: int) -> float:
    """Return how much an instance may lease that no caller waits for.

    It is half of its part of the level, or what it accrued, if that is more. An instance that is alone takes all that
    is left, once that is refilled within LAST. So its callers get the whole burst, and are not refused while the
    bucket holds a few tokens. One instance holds at most half of its part of the burst this way, and all instances
    together at most half of the burst.
    """
    soft = level if part == 1 and level <= band.rate * LAST else max(ALPHA * level * part, mine)
    return min(ALPHA * band.burst * part - held, ALPHA * band.burst - outstanding, soft)
