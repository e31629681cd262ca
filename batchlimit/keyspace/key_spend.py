"""One call's spend at one key that is not in use: no reservoir is made for it.

Where limits are by user, nearly every call comes with another key. A reservoir, its entry, its timer and its end would
take more processor time than to ask the store. None of them is needed if the sizer wants no more than the call costs.
Then no token is left here after the answer, and only a snapshot is kept.
"""

import math
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any
from weakref import ref

from batchlimit.base.decision import Decision
from batchlimit.base.steps import Steps
from batchlimit.base.waiting import NO_WAIT
from batchlimit.bucket.messages import Ask, Grant, Groups, Spend, Spent
from batchlimit.errors import BucketUnavailable, StoreUnavailable
from batchlimit.quota.key import check_key
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.admission import AdmissionResult
from batchlimit.reservoir.bucket_view import KeySnapshot, binding_of, pack
from batchlimit.reservoir.sizing import Demand
from batchlimit.reservoir.statistics import decision
from batchlimit.reservoir.waiter import Fetch

Outcome = tuple[Spent, ...] | StoreUnavailable | None
"""What became of the spends of one call; None: a bucket is leased of, so `take` has to say what is there."""

MESSAGE = attrgetter("message")
IS_CHARGED = attrgetter("is_charged")
_UNHEARD = Spent(False, 0.0, 0, ())


def is_charged(outcome: Outcome) -> bool:
    """Whether all of them were charged."""
    return isinstance(outcome, tuple) and all(map(IS_CHARGED, outcome))


def of_each(error: StoreUnavailable, groups: Groups) -> Outcome:
    """Return what an error of a whole call is to each of its groups: of several buckets `take` says which it is of.

    A cluster of one node, asked as a server, serves each key, and refuses two in one script.
    """
    is_several = len(groups) > 1 or len(groups[0]) > 1
    return None if is_several and isinstance(error, BucketUnavailable) else error


class KeySpend:
    """What a call spends at one key; `message` is for the store, and `spent` what came of it."""

    spent = _UNHEARD
    admitted = waited = True
    """See AdmissionResult; so `decision`. Only for one that was charged."""

    def __init__(
        self,
        key: str,
        place: str,
        message: Spend,
        code: Quota,
        demand: Demand,
        epoch: int,
        now: float,
        snapshot: KeySnapshot | None,
        number: int,
    ) -> None:
        """`key` is as its caller named it, `code` its quota without overrides; `epoch`: of a bucket that must be there.

        `demand` is that of the key, this call included; all its spends have one. `snapshot` is what was known of it.
        `number` is the place of its caller, if the key comes into use: before all who come then.
        """
        self.key, self.place, self.message, self.code, self.epoch, self.sent = key, place, message, code, epoch, now
        self.demand, self.snapshot, self.number, self.me = demand, snapshot, number, ref(self)

    def packed(self, now: float) -> bytes:
        """Return what is to be known of the key, as `KeySnapshot.pack` does; the bucket told of no instance."""
        trip = (self.snapshot is not None and self.snapshot.round_trip) or now - self.sent  # the first is good enough
        spent, demand = self.spent, self.demand
        return pack(now, demand.rate, demand.at, self.message.cost, spent.epoch, min(spent.levels), 0.0, trip, now)

    def decision(self, _now: float = 0.0) -> Decision:
        """Say all that a caller wants to be told."""
        quota, levels = self.message.quota, self.spent.levels
        binding = binding_of(levels, quota) if quota.also else None
        return decision(quota, math.floor(min(levels)), 0.0, "store", binding, levels)

    def fetch(self, instance: str, number: int) -> Fetch:
        """Return the ask that a reservoir would have sent: it takes in that this one was in vain."""
        cost = self.message.cost
        ask = Ask(instance, number, cost, cost, cost, epoch=self.epoch, look=False)
        return Fetch(ask, self.message.quota, self.sent, cost, False)

    def refusal(self) -> Grant:
        """Return the answer to such an ask; nobody leases of the bucket, which is short."""
        spent, level = self.spent, math.floor(min(self.spent.levels))
        return Grant(0, 0, 0.0, 0.0, spent.retry_after, level, 0, spent.epoch, 1, None, -1, spent.levels)


def longest(begun: Sequence[KeySpend]) -> KeySpend:
    """Return the one of several spends that were refused together whose bucket lacks its tokens for longest."""
    return max(begun, key=lambda each: each.refusal().retry_after)


Settled = AdmissionResult | KeySpend
"""How one call was settled: by an entry, or by a spend."""


def spend_together(registry: Any, costs: Mapping[str, int], came: dict[str, int]) -> Steps[dict[str, Decision] | None]:
    """Charge keys of which none is in use by one spend, or none; return what to tell. None: by their entries.

    `came` gets the numbers of spends in vain, by key. A task awaits what is yielded.
    """
    store, spends = registry.store, registry.spends
    if registry.closed or not (store.spends if len(costs) == 1 else store.spends_together):
        return None
    for key in costs:
        check_key(key)
    begun, outcome = yield spends.spend(costs)
    if is_charged(outcome):
        return {each.key: each.decision() for each in begun}
    came.update((each.key, each.number) for each in begun)
    if not isinstance(outcome, tuple):
        return None
    short = longest(begun)
    settled = yield spends.in_vain(short, outcome, NO_WAIT)
    return None if settled is None or settled.admitted else {short.key: settled.decision(registry.clock())}
