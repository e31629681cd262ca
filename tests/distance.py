"""Instances that say that their server is 2 s away: leases last 4 s, so a machine that stalls for less loses none."""

from typing import Any

from batchlimit.bucket.messages import Ask


def far(*told: Any) -> Ask:
    """What a reservoir asks, from far away; to be put in the place of the `Ask` of `requests`."""
    return Ask(*told)._replace(round_trip=2.0)
