"""What must be true of every history: each rule is a small machine that hears what happens, and remembers little."""

import math
from collections.abc import Sequence

from batchlimit.base.waiting import NO_WAIT
from batchlimit.bucket.bucket import Bucket
from batchlimit.bucket.fair_share import ALPHA, CRUMB, LATE
from batchlimit.bucket.messages import Ask, GiveBack, Grant, Spend, Spent
from batchlimit.quota.quota import Quota
from tests.model.limiter import SECOND, Caller, Limiter
from tests.simulation.watch import Reference, Violation, wrong_sum

_ROUNDING = 3
"""Microseconds by which clocks may be apart."""


class Promise:
    """A caller was told when its cost fits: who comes then to the same instance, with nobody else about, gets it."""

    __slots__ = ("at", "cost", "place", "seeker")

    def __init__(self, place: int, cost: int, at: int) -> None:
        self.place, self.cost, self.at = place, cost, at
        self.seeker: Caller | None = None
        """Who came back for it."""


class Watch:
    """Hears what happens, and looks at all after each step; raises Violation."""

    __slots__ = (
        "_is_told", "_paused", "_pausing", "_taken_back", "_told", "flying", "promise", "references", "spent", "trusts",
    )  # fmt: skip

    def __init__(self, quota: Quota, places: int, now: int) -> None:
        self.references = [Reference(each.rate, each.burst, now) for each in quota.bandwidths]
        self._told = [[0, 0] for _ in range(places)]  # tokens admitted and refused, as callers heard
        self._taken_back = [0] * places
        self.promise: Promise | None = None
        self._is_told = False  # whether the bucket has granted nothing since it refused somebody
        self.spent: dict[str, tuple[int, int]] = {}  # by instance: what the bucket counts as spent, and until when
        self.flying = 0  # tokens of spends that are under way, at the most
        self._paused: tuple[int, int] = 0, 0  # until when the bucket is paused, and what may be admitted meanwhile
        self._pausing = [(0, 0)] * places  # the same of each instance that has paused it
        self.trusts = True  # False: the store lost its state, so what it counts is less than what is leased

    # What happens

    def admitted(self, limiter: Limiter, caller: Caller, now: int, *, memory: bool) -> None:
        reservoir, self._told[limiter.place][0] = limiter.reservoir, self._told[limiter.place][0] + caller.cost
        self._check_pause(limiter, caller.cost, now)
        self.used(caller.cost, now)
        self._settle(caller)
        line = [] if reservoir is None else list(reservoir.state.queue)
        if memory and any(isinstance(each, Caller) for each in line):
            raise Violation(f"{limiter.name} admits a caller from memory while another waits")
        others = [each for each in line if isinstance(each, Caller)] if caller.number else []
        if any(each.priority == caller.priority and each.number < caller.number for each in others):
            raise Violation(f"{limiter.name} admits a caller before one that came earlier")
        if any(each.priority > caller.priority for each in others):  # there are too few for a turn of others
            raise Violation(f"{limiter.name} admits a caller before one that is urgent")

    def used(self, cost: int, now: int) -> None:
        """A caller goes ahead: every window that ends now has these tokens."""
        for reference in self.references:
            reference.advance(now)
            reference.level -= cost
            if reference.level < -_tolerance(reference):
                raise Violation(f"{-reference.level:g} more than burst + rate x T were admitted")

    def paid(self, limiter: Limiter, cost: int, now: int) -> None:
        """Tokens are spent with which no caller waits: what was owed, or what a stopped process had taken."""
        self._told[limiter.place][0] += cost
        self._check_pause(limiter, cost, now)
        self.used(cost, now)

    def refused(self, limiter: Limiter, caller: Caller, retry_after: float, now: int) -> None:
        self._told[limiter.place][1] += caller.cost
        if (promise := self.promise) is not None and promise.seeker is caller:
            raise Violation(f"{limiter.name} refuses a caller of {caller.cost} that came when it was told")
        self._settle(caller)
        if not 0 < retry_after < math.inf:
            raise Violation(f"{limiter.name} tells a caller to come back in {retry_after} s")
        if self._is_told:
            self.promise = Promise(limiter.place, caller.cost, now + math.ceil(retry_after * SECOND))

    def failed(self, limiter: Limiter, caller: Caller) -> None:
        """The store did not answer: such a caller counts as refused where it stood in line."""
        if caller.number:
            self._told[limiter.place][1] += caller.cost
        self._settle(caller)

    def came(self, limiter: Limiter, caller: Caller, now: int) -> None:
        """A caller comes."""
        if (promise := self.promise) is None:
            return
        is_back = promise.place == limiter.place and now >= promise.at and caller.cost <= promise.cost
        if is_back and promise.seeker is None and not limiter.callers:
            promise.seeker = caller
        else:
            self.promise = None

    def disturbed(self) -> None:
        """A fault, or anything else by which what was told may not be true any more."""
        self.promise = None

    def began(self, place: int) -> None:
        """Another process is in this place."""
        self._told[place], self._taken_back[place] = [0, 0], 0
        self.promise = None

    def refundable(self, place: int) -> int:
        """Tokens that callers were admitted for, and have not taken back."""
        return self._told[place][0] - self._taken_back[place]

    def takes_back(self, place: int, cost: int) -> None:
        self._taken_back[place] += cost

    def of(self, limiter: Limiter, most: int, now: int) -> tuple[int, ...]:
        """What it remembers of one instance, to tell equal worlds; `most` is what may be taken back."""
        spent, until = self.spent.get(limiter.name, (0, 0))
        promise, lasts = self.promise, max(0, until - now)
        is_told = promise is not None and promise.place == limiter.place
        seeks = [promise is not None and promise.seeker is each for each in limiter.callers]
        return spent if lasts else 0, lasts, is_told, *seeks, min(most, self.refundable(limiter.place))

    def refunded(self, tokens: int, now: int) -> None:
        """Spent tokens are there again, at an instance or in the bucket."""
        for reference in self.references:
            reference.advance(now)
            reference.level += tokens

    def lost(self, outstanding: int, debt: float, now: int, lasting: int) -> None:
        """The store forgets: what is leased may be spent beside a whole burst, and the new bucket begins as told."""
        for reference in self.references:
            reference.allow(reference._burst + debt, outstanding + self.flying, now, lasting)
        self.trusts, self.promise = False, None

    def paused(self, bucket: Bucket, charged: int, until: int, now: int) -> None:
        """The bucket is paused: what is leased, and what was `charged`, may be admitted yet."""
        spent = sum(tokens for tokens, ends in self.spent.values() if now < ends)
        self._paused = until, bucket._table.outstanding + spent + charged
        self.promise, self._is_told = None, True

    def holds(self, place: int, charged: int, until: int) -> None:
        """An instance has paused the key, or resumed it; it may hear so after somebody has lifted the pause."""
        self._pausing[place] = min(until, self._paused[0]), charged
        self.promise, self._is_told = None, True

    def resumed(self, bucket: Bucket | None) -> None:
        """The pause is lifted."""
        if bucket is not None and bucket._table.outstanding + min(bucket._levels) < 0:
            raise Violation(f"the bucket has {min(bucket._levels):g} after a pause that was lifted")
        self._paused = 0, 0
        self._pausing = [(0, 0)] * len(self._pausing)

    def filled(self, before: Sequence[float], bucket: Bucket, now: int) -> None:
        """An operator fills the bucket: so much more is admitted."""
        for reference, old, new in zip(self.references, before, bucket._levels, strict=True):
            reference.allow(new - old + 0.001, 0, now)  # it tells thousandths

    def asked(self, name: str, ask: Ask, grant: Grant, bucket: Bucket, now: int) -> None:
        """The bucket has carried out an ask."""
        entry = bucket._table.instances.get(name)
        self._settle_others(name, grant.granted)
        self._is_told = grant.granted < ask.need
        if entry is None or entry.seq != ask.seq or entry.seen < bucket._now:
            return  # a late copy, or a repetition
        self._count_spent(name, bucket, grant, now)
        aside = bucket._reserved.tokens if bucket._reserved and bucket._reserved.name != name else 0
        level = min(bucket._levels) - aside
        if grant.granted < ask.need and self._fits(bucket, ask.need, level):
            raise Violation(f"the bucket refuses {ask.need} to {name}, and has {level:g}")
        if grant.starts_in > 0 and self._fits(bucket, ask.need, level + grant.granted):
            raise Violation(f"the bucket grants {grant.granted} to {name} for later, and had {level + grant.granted:g}")
        if grant.retry_after > self._latest(ask.need, bucket) / SECOND:
            raise Violation(f"the bucket tells {name} to come back in {grant.retry_after:g} s, and has {level:g}")

    def obeyed(self, bucket: Bucket, ask: Ask) -> None:
        """A bucket goes by the overrides that it has heard of last, and by no older quota than it is asked with."""
        since = bucket._now - round(ask.age * SECOND) - _ROUNDING
        if bucket._rank[0] < ask.rules or (bucket._rank[0] == ask.rules == 0 and (bucket._since or 0) < since):
            raise Violation(f"the bucket obeys {bucket._quota}, though it was asked with a newer one")

    def charged(
        self, spend: Spend, before: int, told: Spent | None, bucket: Bucket | None, now: int, lasting: int
    ) -> None:
        """The bucket has carried out a spend, or refused it; `before` is what a look at it showed."""
        if told is None:
            return
        self._is_told = not told.is_charged
        if told.is_charged:
            self._settle_others("", 1)
            if min(told.levels) < before - spend.cost:
                raise Violation(f"a spend of {spend.cost} leaves {min(told.levels):g} of {before}")
            for reference in self.references:
                reference.allow(0, spend.cost, now, lasting)
        elif bucket is not None and min(bucket._levels) >= spend.cost:
            raise Violation(f"the bucket refuses a spend of {spend.cost}, and has {min(bucket._levels):g}")

    def returned(self, back: GiveBack, *, is_first: bool, now: int) -> None:
        """The bucket has carried out a GiveBack: its refunds are there again, once."""
        if is_first and back.refund:
            self.refunded(back.refund, now)

    # What must be true at every moment

    def look(self, limiters: list[Limiter], touched: list[Limiter], bucket: Bucket | None, now: int, told: int) -> None:
        """`told`: what the clock of the store shows."""
        for limiter in touched:
            self._check_counts(limiter)
        if bucket is None:
            return
        if wrong := wrong_sum(bucket):
            raise Violation(wrong)
        for limiter in limiters:
            self._check_held(limiter, bucket, now, told)
        held = sum(_held(limiter) for limiter in limiters)
        for reference, level in zip(self.references, bucket._levels, strict=True):
            reference.advance(now)
            if level + held > reference.level + _tolerance(reference):
                left = f"the {reference.level:g} that are left"
                raise Violation(f"{level:g} in the bucket and {held} at instances are more than {left}")

    def _check_counts(self, limiter: Limiter) -> None:
        admitted, refused, waiting = limiter.counts
        in_line = sum(each.begun is None for each in limiter.callers)
        told = (*self._told[limiter.place], in_line + len(limiter.keyspace.spending))  # spends are counted by key
        if limiter.runs and (admitted, refused, waiting) != told:
            raise Violation(f"{limiter.name} counts {(admitted, refused, waiting)}, and its callers {told}")

    def _check_held(self, limiter: Limiter, bucket: Bucket, now: int, told: int) -> None:
        """No instance has more than the bucket counts as its."""
        entry = bucket._table.instances.get(limiter.name)
        counted = 0 if entry is None or entry.expires <= max(bucket._now, told - bucket._epoch) else entry.held
        spent, until = self.spent.get(limiter.name, (0, 0))
        counted += spent if now < until else 0
        if self.trusts and (held := _held(limiter)) > counted:
            raise Violation(f"{limiter.name} holds {held}, of which the bucket counts {counted}")

    def _check_pause(self, limiter: Limiter, cost: int, now: int) -> None:
        """In a pause no more is admitted than was granted before it; and nothing where it was asked for."""
        (ends, left), (own_end, own) = self._paused, self._pausing[limiter.place]
        if now < ends:
            self._paused = ends, left - cost
        if now < own_end:
            self._pausing[limiter.place] = own_end, own - cost
        if (now < ends and cost > left) or (now < own_end and cost > own):
            raise Violation(f"{limiter.name} admits {cost} during a pause")

    # What it remembers

    def _settle(self, caller: Caller) -> None:
        """A caller has its verdict."""
        if self.promise is not None and self.promise.seeker in (caller, None):
            self.promise = None

    def _settle_others(self, name: str, granted: int) -> None:
        """Another instance has got something meanwhile."""
        if granted and self.promise is not None and name != "ABC"[self.promise.place]:
            self.promise = None

    def _count_spent(self, name: str, bucket: Bucket, grant: Grant, now: int) -> None:
        """What is spent when it is granted makes room at once: a caller may be admitted by it until its lease ends."""
        entry = bucket._table.instances[name]
        if not entry.held < entry.granted == grant.granted or entry.starts < bucket._now:
            return
        lasting = entry.expires - bucket._now
        self.spent[name] = entry.granted, now + lasting
        for reference in self.references:
            reference.allow(0, entry.granted, now, lasting)

    def _fits(self, bucket: Bucket, need: int, level: float) -> bool:
        """Whether a need is to be granted by a bucket of this level, whatever is set aside for others."""
        aside = 0 if bucket._table.active == 1 else math.floor(ALPHA * level)
        return need > 0 and math.floor(level) - aside >= need

    def _latest(self, need: int, bucket: Bucket) -> float:
        """After how many us `need` fits at the latest: half of the level is for whoever asks."""
        return _ROUNDING + max(
            max(0.0, need - level, (need - 1) / (1 - ALPHA) + 1 - level) / band.rate for band, level in bucket._each()
        )


def loosest(one: Quota, other: Quota) -> Quota:
    """Return what no window may be above while one quota takes the place of another.

    What is used counts as a share of the burst, and levels are scaled by it. So it is the larger burst, and what is
    refilled at the larger part of a burst per second.
    """
    if one == other:
        return one
    burst = max(one.burst, other.burst)
    return Quota(burst * max(each.rate / each.burst for each in (one, other)), burst)


def latest_spend(quota: Quota, patience: float) -> int:
    """For how many us a spend may admit its caller after it was charged: see `Spending.settle`."""
    fastest = max(each.rate for each in quota.bandwidths)
    return round(max(patience, min(LATE / 1e6, CRUMB / fastest)) * SECOND)


def _held(limiter: Limiter) -> int:
    """Tokens of the bucket for which callers of an instance could be admitted."""
    reservoir = limiter.reservoir
    now = limiter.clock() + _ROUNDING / SECOND
    if limiter.is_gone or reservoir is None or now >= reservoir.tokens.expires:
        return 0
    cost, before = limiter.stopped_with or (0, NO_WAIT)
    return reservoir.state.lease.leased + (cost if now < before else 0)


def _tolerance(reference: Reference) -> float:
    return 1e-6 + _ROUNDING * reference._rate + 1e-9 * reference._burst
