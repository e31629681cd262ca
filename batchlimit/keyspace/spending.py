"""Spend or lease: which calls ask the store for their own tokens alone, and what becomes of the answers.

A key leases while it is in use: then it has an entry, and callers spend from its memory. A call for a key that is not
in use spends, unless the sizer wants more for its callers than this call costs, or instances lease of its bucket. Then
nothing is kept but a snapshot: a reservoir, its entry, its timer and its end would take longer than to ask the store.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from weakref import ref

from batchlimit.base.decision import Decision
from batchlimit.base.key import names_of
from batchlimit.bucket.fair_share import CRUMB, LATE, QUIET, WAITING
from batchlimit.bucket.messages import Ask, Grant, Groups, Spend, Spent, spend_of
from batchlimit.errors import BucketUnavailable, StoreUnavailable
from batchlimit.keyspace.census import Tallies
from batchlimit.keyspace.kept_keys import DormantKeys
from batchlimit.quota.overrides.code import Code
from batchlimit.quota.overrides.override import KeyRule
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.admission import AdmissionResult
from batchlimit.reservoir.bucket_view import KeySnapshot, binding_of, fastest_rate, first_fill, kept_epoch, pack
from batchlimit.reservoir.options import Instance, Options
from batchlimit.reservoir.sizing import KERNEL, Demand, TimeBatch, Usage, wanted
from batchlimit.reservoir.statistics import decision
from batchlimit.reservoir.waiter import Fetch

_QUIET = QUIET / 1e6
_COUNTED = 15.0
"""Seconds. So rarely it is said again that one instance, this one, is there: see InstanceCount."""
_WAITING = WAITING / 1e6
"""Seconds. An answer is of use for so long, for two deadlines, or for as long as next to nothing is refilled."""


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
        demand: Demand | None,
        epoch: int,
        now: float,
        snapshot: KeySnapshot | None,
        number: int,
    ) -> None:
        """`key` is as its caller named it, `code` its quota without overrides; `epoch`: of a bucket that must be there.

        `demand` is that of the key, this call included; None: nobody asked before. `snapshot` is what was known of it.
        `number` is the place of its caller, if the key comes into use: before all who come then.
        """
        self.key, self.place, self.message, self.code, self.epoch, self.sent = key, place, message, code, epoch, now
        self.demand, self.snapshot, self.number, self.me = demand, snapshot, number, ref(self)

    def demand_so_far(self) -> Demand:
        """Return the demand of its key, this call included: all spends of the key have one."""
        self.demand = self.demand or Demand(self.sent, self.message.cost / KERNEL)
        return self.demand

    def packed(self, now: float) -> bytes:
        """Return what is to be known of the key, as `KeySnapshot.pack` does; the bucket told of no instance."""
        trip = (self.snapshot is not None and self.snapshot.round_trip) or now - self.sent  # the first is good enough
        spent, demand, cost = self.spent, self.demand, self.message.cost
        rate, at = (cost / KERNEL, self.sent) if demand is None else (demand.rate, demand.at)
        return pack(now, rate, at, cost, spent.epoch, min(spent.levels), 0.0, trip, now)

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


Settled = AdmissionResult | KeySpend
"""How one call was settled: by an entry, or by a spend."""


class Spending:
    """Begins and settles the spends of one limiter. A keyspace has one of these."""

    __slots__ = (
        "_clock", "_counts_at", "_dormant", "_entries", "_in_flight", "_instance", "_needs_demand", "_options",
        "_rules", "_tallies", "code", "numbers", "patience",
    )  # fmt: skip

    def __init__(
        self,
        entries: Mapping[str, object],
        dormant: DormantKeys,
        instance: Instance,
        options: Options,
        *,
        clock: Callable[[], float],
        tallies: Tallies,
        code: Code,
    ) -> None:
        """`entries` are those in use, by the `place_of` their keys, and `dormant` the keys that are known besides."""
        self._entries, self._dormant, self._instance, self._options = entries, dormant, instance, options
        self._clock, self._tallies, self.code = clock, tallies, code
        self._rules, self._counts_at = instance.rules, -math.inf
        self._needs_demand = type(options.sizer) is TimeBatch  # the usual sizer wants nothing of a demand of 0
        self.patience = max(_WAITING, 2 * options.deadline)
        # Of keys whose calls wait for an answer, the last one. It is gone with its call, wherever that is interrupted.
        self._in_flight: dict[str, ref[KeySpend]] = {}
        self.numbers = itertools.count(1)  # of callers, in order of arrival

    def __len__(self) -> int:
        """At how many keys spends are in flight."""
        for place, each in tuple(self._in_flight.items()):
            if each() is None:
                self._in_flight.pop(place, None)
        return len(self._in_flight)

    @property
    def looks(self) -> bool:
        """Whether an answer is to tell the revision of the overrides."""
        return self._clock() >= self._rules.looks_at

    def begin(self, costs: Mapping[str, int]) -> list[KeySpend] | None:
        """Return what a call spends at checked keys, as its caller named them; None: one of them needs an entry."""
        begun: list[KeySpend] = []
        try:
            for key, cost in costs.items():
                if (one := self.begin_one(key, cost)) is None:
                    return None
                begun.append(one)
            return begun
        finally:
            if len(begun) < len(costs):
                self.end(begun)

    def begin_one(self, key: str, cost: int) -> KeySpend | None:
        """Do the same for one checked key; `cost` may have any type."""
        name, place = names_of(key)
        if place in self._entries:
            return None
        code, rules = self.code, self._rules.in_force
        now = self._clock()  # after the code was read: no code is from later than that
        quota = own = code.quota(key)
        if rules.overrides.by_name or not code.is_enforced:
            rule = rules.rule(name, KeyRule(own, code.mode(key)))
            if not rule.is_plain:
                return None
            quota = rule.quota
        if cost.__class__ is not int or not 0 < cost <= quota.largest_cost:
            return None
        snapshot = self._dormant.look_up(place)
        epoch, fill = 0, 1.0  # of the bucket that must be there, and how full it begins if it is lost
        if snapshot is None and place not in self._in_flight and self._needs_demand:
            demand = None  # nobody has asked yet
        else:
            demand = self._demand(place, snapshot, now)
            if self._leases(quota, cost, demand, snapshot, now):
                return None
            demand.observe(cost, now)
            if snapshot is not None:
                epoch = kept_epoch(int(snapshot.epoch), snapshot.level, snapshot.heard, quota, now)
                fill = first_fill(self._options.fill, int(snapshot.active_instances)) if epoch else 1.0
        rank = code.rank
        message = spend_of((name, quota, cost, now - rank.since, fill, rules.edition, rank.revision))
        begun = KeySpend(key, place, message, own, demand, epoch, now, snapshot, next(self.numbers))
        self._in_flight[place] = begun.me
        return begun

    def is_asked(self, key: str) -> bool:
        """Whether a spend at this key is in flight."""
        return names_of(key)[1] in self._in_flight

    def _demand(self, place: str, snapshot: KeySnapshot | None, now: float) -> Demand:
        """Return the demand of a key before this call."""
        before = self._in_flight.get(place)
        if before is not None and (last := before()) is not None:
            return last.demand_so_far()
        return Demand(now) if snapshot is None else Demand(snapshot.counted_at, snapshot.demand)

    def hear_of(self, begun: Sequence[KeySpend], outcome: Outcome, now: float, kept: dict[str, bytes]) -> Outcome:
        """Take in and return what became of one call's spends, and note what to `keep`; None: it came too late."""
        for each in begun:  # as `end`, without its call
            if self._in_flight.get(each.place) is each.me:
                del self._in_flight[each.place]
        if now - begun[0].sent > self.patience and any(_is_late(each, now) for each in begun):
            return None
        if isinstance(outcome, tuple):
            tallies = self._tallies
            if len(outcome) != len(begun):
                raise ValueError(f"{len(outcome)} answers to {len(begun)} spends")
            all_charged = all(map(IS_CHARGED, outcome))
            for each, spent in zip(begun, outcome):  # noqa: B905  `strict` takes 300 ns
                each.spent = spent
                if all_charged:
                    tally = tallies.spends[tallies.policies.get(id(each.code), -1)]  # as `number`, without its call
                    tally[0] += 1
                    tally[1] += each.message.cost
                    tally[2] += 0 < each.epoch != spent.epoch
                    if each.snapshot is not None:
                        self._dormant.forget(each.place)  # the new one may come to another shelf
                    kept[each.place] = each.packed(now)
        return outcome

    def wakes_late(self, begun: Sequence[KeySpend], outcome: Outcome) -> bool:
        """Whether what was charged is of no use to a caller that wakes now; then it has admitted nobody."""
        now = self._clock()
        if is_late := is_charged(outcome) and any(_is_late(each, now) for each in begun):
            for each in begun:
                self._tallies.spends[self._tallies.policies.number(each.code)][1] -= each.message.cost
        return is_late

    def keep(self, kept: dict[str, bytes], now: float) -> float:
        """Remember keys that were spent at just now; return the instant at which to forget one (inf: no need)."""
        if not kept:
            return math.inf
        used = self._entries
        if now >= self._counts_at:
            self._instance.count.learn(1, now)
            self._counts_at = now + _COUNTED
        if not used.keys().isdisjoint(kept):
            kept = {place: packed for place, packed in kept.items() if place not in used}
        return self._dormant.keep(kept, now, now, len(used))

    def end(self, begun: Sequence[KeySpend]) -> None:
        """Take note that nobody waits for the answer any more."""
        for each in begun:
            if self._in_flight.get(each.place) is each.me:
                del self._in_flight[each.place]

    def clear(self) -> None:
        """Take note that no answer is to come to any."""
        self._in_flight.clear()

    def hear(self, rules: int) -> None:
        """Take in the revision of the overrides that an answer told because it was looked for; -1: it is not seen."""
        self._rules.hear(rules, self._clock())

    def fetch(self, spend: KeySpend) -> Fetch:
        """Return the ask that the entry of its key would have sent in its place."""
        return spend.fetch(self._instance.name, next(self._instance.numbers))

    def _leases(self, quota: Quota, cost: int, demand: Demand, snapshot: KeySnapshot | None, now: float) -> bool:
        """Whether a lease is worth what it costs, by the demand before this call; or instances lease of the bucket.

        One call alone is no demand yet: of keys that are seen once and again, most would lease in vain.
        """
        last, is_rich = 0, False
        if snapshot is not None:
            if snapshot.active_instances and now - snapshot.heard < _QUIET:
                return True
            last, is_rich = int(snapshot.last_want), snapshot.level * 2 >= quota.largest_cost
        if not (is_repeated := demand.is_repeated(cost)) and self._needs_demand:
            return False
        asked_for = demand.left(now) if is_repeated else 0.0
        return wanted(self._options.sizer, Usage(quota, asked_for, last, 0, is_rich)) > cost


def _is_late(spend: KeySpend, now: float) -> bool:
    """Whether more of its bucket may have flowed in meanwhile than a spend may add to a window."""
    return now - spend.sent > min(LATE / 1e6, CRUMB / fastest_rate(spend.message.quota))
