"""How a bucket divides itself: the bandwidths of a quota in microseconds, and one host's fair share of each."""

from typing import NamedTuple

from batchlimit.core.quota import Quota

# What the scripts call by the same names; tests/lua holds them equal. Microseconds.
ALPHA = 0.5
"""The share of a bucket that all hosts together may hold in reserve; the rest stays for whoever comes."""
LEASE = 1_000_000
"""The longest lease, but for a host whose answers take long."""
SHORTEST = 100_000
"""The shortest lease."""
SLOWEST = 2_000_000
"""The longest round trip that a lease makes up for."""
ACTIVE = 1_000_000
"""A host that asked within this time has a share."""
PACE = 50_000
"""The longest spacing of one host's asks at a dry bucket."""
MARGIN = 5_000_000
"""How much longer than needed an untouched bucket is kept: longer than any lease."""
LONGEST = 315_360_000_000_000
"""Ten years: what is longer might overflow a clock or an integer."""


class Band(NamedTuple):
    """One bandwidth: tokens per us, and the burst in tokens."""

    rate: float
    burst: int


def bands_of(quota: Quota) -> list[Band]:
    """Return the quota's bandwidths in the unit in which the scripts count."""
    return [Band(bandwidth.rate / 1_000_000, bandwidth.burst) for bandwidth in quota.bandwidths]


def lease_of(bands: list[Band]) -> int:
    """Return how long a lease lasts (us): a small part of the refill time, but no shorter than a slow answer takes."""
    return max(SHORTEST, int(min(min(LEASE, 0.4 * band.burst / band.rate) for band in bands)))


def pace_of(bands: list[Band]) -> float:
    """Return how far apart one host's asks are at a dry bucket (us)."""
    return min(min(PACE, 0.1 * band.burst / band.rate) for band in bands)


def division(
    band: Band, level: float, active: int, now: int, last: int, lasts: int, need: int
) -> tuple[float, float, float]:
    """Return (share, mine, fair): the host's tokens per us, what it accrued, and what it may take without harm.

    Each of the n active hosts accrues rate/n from when it was last served. A host may take what it accrued, or what
    is left in the bucket when all that the others accrued is set aside, whichever is more. `lasts` is the sum of the
    hosts' `last`, so that the others' accrual costs no loop.
    """
    share = band.rate / active
    mine = min(share * (now - last), max(band.burst / active, need))
    others = min(share * ((active - 1) * now - (lasts - last)), band.burst * (active - 1) / active)
    return share, mine, max(mine, level - max(0, others))
