"""When not to ask the bucket: what this instance remembers of a bucket that was short."""

import math
from typing import NamedTuple, Self

from batchlimit.base.waiting import LONG_AGO
from batchlimit.bucket.fair_share import ACTIVE, bands_of, pace_of
from batchlimit.bucket.messages import Grant
from batchlimit.quota.overrides.known import REFRESH
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.bucket_view import fastest_rate
from batchlimit.reservoir.waiter import Fetch

_LONGEST = 0.5 * ACTIVE / 1e6
"""Seconds after which a waiting instance asks again in any case. A later ask would cost it its turn, for the bucket
takes an instance that is silent for gone. It would also learn late that the limit was raised."""

_SMALL = 4
"""Where this many times the cost fits the burst nothing is lost while an instance is late: the bucket has room."""
_PACES = 2.0
"""Elsewhere a waiting caller asks so many paces before its cost fits: for a grant that begins right then, and a grant
begins after one pace at the soonest. Four instances that asked when it fits used 95 % of 100/s burst 1, instead of 97.
Each was late by a round trip and by its timer (simulated, 0.3 ms away)."""

PLENTY = 0.2
"""The longest pace, as a part of the refill time: so `learned` finds no dry spell after what leaves more. To find that
takes three times as long as to look at this."""
_TIGHT = 15
"""At a smaller burst an instance does not pause for a token or two: the bucket would fill meanwhile, and lose them."""
_ROUNDED = 2e-6
"""Seconds by which a bucket rounds its waits up, at the most."""
MOMENT = 0.01
"""Seconds until a hold ends, at the least: whoever is to end it may be late."""


class DenialCache(NamedTuple):
    """Refuses from memory, until `dry_until`, whatever costs `dry_cost` or more. Instants are of the own clock.

    A dry spell is a time in which an instance does not ask. Only a bucket that was itself short begins one. A grant cut
    down to the instance's share does not: that left tokens unused (7.5 % of the throughput, in simulation). A long wait
    is remembered for half a second: a limit may be raised, or tokens refunded, by another instance.

    A dry spell after a grant spares asks for a few tokens each. It does not hold for a caller of `large_cost` or more,
    once the bucket has that: the caller was told to come back then. About as much is refilled in a dry spell.

    The alternative, grants that begin later, serves callers who wait. For callers who do not it changed nothing: after
    a dry spell there is nearly always something for the first of them, so there is nothing to put off. Simulated, 20
    instances at 10,000/s: 1.93 % calls per decision at twice the rate, 0.68 % at six times, 99.9 % used, with either.

    It is a value: each answer makes another one. Nearly all keys share NO_DENIALS, and a caller without the lock sees
    all of one answer.
    """

    dry_until: float
    dry_cost: int
    fits_at: float
    asks_at: float
    """When one who waits asks: a moment before its cost fits, for a grant that begins right then."""
    large_cost: float = math.inf

    @classmethod
    def dry(cls, wait: float, cost: int, now: float, *, early: float = 0.0, large_cost: float = math.inf) -> Self:
        """Refuse what costs as much for `wait` seconds, until it fits; who waits asks `early`. 0: ask at once."""
        fits_at = now + wait
        return cls(min(fits_at, now + _LONGEST), cost, fits_at, fits_at - early, large_cost)

    @classmethod
    def holding(cls, until: float, now: float) -> "DenialCache":
        """Refuse everything, as the rate is 0 `until` then; a look a second later tells if that was lifted."""
        ends = max(until, now + MOMENT)
        return cls(min(ends, now + REFRESH), 0, ends, math.inf)

    @classmethod
    def learned(
        cls, fetch: Fetch, grant: Grant, quota: Quota, demand: float, now: float, jitter: float, begins: float
    ) -> "DenialCache":
        """Decide by an answer when to ask next. The grant `begins` then: see Lease.

        `jitter` (about 1) keeps instances from asking in step.
        """
        if grant.starts_in > 0.0:
            return cls.dry(begins - now, 1, now)
        bands = bands_of(quota)
        pace = jitter * pace_of(bands, grant.active_instances) / 1e6
        flow = pace * min(each.rate for each in quota.bandwidths)  # refilled meanwhile
        if grant.granted < fetch.ask.need:
            # A repeated ask got the answer to an older question: it says nothing about this one.
            shortest = jitter * pace_of(bands, 0) / 1e6
            wait = 0.0 if fetch.repeated else max(shortest, grant.retry_after)
            # One who waits asks before what is needed fits: for a grant that begins right then.
            early = min(_PACES * pace, fetch.ask.max_wait / 2) if fetch.ask.need * _SMALL > quota.largest_cost else 0.0
            early = min(early, wait - shortest)
            denied = cls.dry(wait, fetch.cost, now, early=early)
            if fetch.ask.max_wait or fetch.repeated:
                return denied
            return denied.until_asked(fetch, grant, quota, shortest, now)
        # Where leased tokens fill the bucket, only the next ask makes room for the flow.
        has_room = grant.level + grant.kept + grant.granted + flow <= quota.largest_cost
        if grant.level < flow >= 2.0 + (quota.largest_cost < _TIGHT) and grant.granted < demand * pace and has_room:
            # where fewer are refilled meanwhile, only a refusal tells when there is one
            large = flow if fetch.ask.need else 2.0  # what is fetched ahead, nobody was told to come back for
            return cls.dry(pace, 1, now, large_cost=large)
        return NO_DENIALS

    def until_asked(self, fetch: Fetch, grant: Grant, quota: Quota, shortest: float, now: float) -> "DenialCache":
        """End the dry spell as soon as an ask may find the token that its caller, who does not wait, was refused.

        The bucket counted from when it heard the ask, and another takes as long to come there: so the round trip is not
        lost to the rate. One that travels faster comes too early, and is sent again. With a dry spell from the answer
        on, 1 ms away, 100/s burst 1 admitted 89 % of what a plain bucket did (simulated).
        """
        refilled = shortest * fastest_rate(quota)  # where it is less there is an ask a token at most
        pace = shortest if refilled >= 1.0 + (quota.largest_cost < _TIGHT) else 0.0
        soonest, due = now + pace, fetch.sent + grant.retry_after - _ROUNDED
        return self._replace(dry_until=max(soonest, min(self.dry_until, due)))

    def dry_for(self, cost: int, now: float) -> float:
        """Return for how many seconds yet there is no use in asking for `cost`; 0 when one may ask."""
        return max(0.0, self.until(cost) - now)

    def until(self, cost: int) -> float:
        """Return the instant from which there is use in asking for `cost`; -inf: always."""
        return self.dry_until if cost >= self.dry_cost else LONG_AGO

    def wait(self, cost: int, now: float) -> float:
        """Return after how many seconds `cost` is expected to fit, as far as is known; never less than `dry_for`."""
        return max(0.0, self.fits_at - now) if cost >= self.dry_cost else 0.0


NO_DENIALS = DenialCache(LONG_AGO, 0, LONG_AGO, LONG_AGO)
"""Nothing is known to be short: ask at once."""
