"""A call for a key that is not in use, settled by one ask of the store: no reservoir is made for it.

Where limits are by user, nearly every call comes with another key. A reservoir, its entry, its timer and its end would
take more processor time than the ask itself. None of them is needed if the sizer wants no more than the call costs.
Then no token is left here after the answer, and only a snapshot is kept.

All other cases need a reservoir: another caller comes for the key meanwhile, the store does not answer, the bucket is
short, or its quota has changed. Then the key comes into use: it gets an entry, and its reservoir begins with this ask
in flight (`Reservoir.resume`).
"""

from typing import Any

from batchlimit.bucket.messages import Ask, Grant
from batchlimit.decision import Decision
from batchlimit.overrides.code import Rank
from batchlimit.quota.key import place_of, stored
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.admission import AdmissionResult
from batchlimit.reservoir.bucket_view import BucketView, KeySnapshot, binding_of, is_plenty, pack, smoothed
from batchlimit.reservoir.instance import Instance
from batchlimit.reservoir.options import Options
from batchlimit.reservoir.requests import furthest
from batchlimit.reservoir.sizing import Demand, Usage, wanted
from batchlimit.reservoir.statistics import decision
from batchlimit.reservoir.waiter import Fetch
from batchlimit.waiting import NO_WAIT

_LATEST = 1.25
"""By this factor a bucket must be fuller than what a reservoir takes for plenty, whatever its jitter is."""


class SingleAsk:
    """One caller's ask for a key that is not in use; `begin` says whether it is to be sent.

    `entry` and `caller` are set when the key comes into use: from then on the answer is reported to the entry.
    """

    __slots__ = (
        "_binding",
        "_demand",
        "_fetch",
        "_instance",
        "_level",
        "_round_trip",
        "ask",
        "caller",
        "code",
        "cost",
        "deadline",
        "edition",
        "entry",
        "key",
        "name",
        "place",
        "quota",
        "rank",
        "sent",
        "snapshot",
        "who",
    )  # fmt: skip
    admitted = waited = True
    """See AdmissionResult; so `decision`. Only for one that is settled: its call was admitted."""

    def __init__(
        self,
        key: str,
        quota: Quota,
        cost: int,
        deadline: float,
        who: Any = None,
        *,
        code: Quota | None = None,
        edition: int = 0,
        rank: Rank | None = None,
    ) -> None:
        """`key` is checked; `who` tells the API whose call it is; `code`, of a `rank`, is without overrides."""
        self.key, self.quota, self.cost, self.deadline, self.who = key, quota, cost, deadline, who
        self.code, self.edition, self.rank = code or quota, edition, rank
        self.name = name = stored(key)
        self.place = place_of(name)
        self.ask: Ask | None = None
        self._fetch: Fetch | None = None
        self.entry: Any = None  # of the API, both
        self.caller: Any = None

    def __repr__(self) -> str:
        return f"<SingleAsk of {self.cost}: {self.ask}>"

    @property
    def fetch(self) -> Fetch:
        """The same as a reservoir sends it."""
        if self._fetch is None:
            assert self.ask is not None
            self._fetch = Fetch(self.ask, self.quota, self.sent, self.cost, False)
        return self._fetch

    def begin(self, snapshot: KeySnapshot | None, instance: Instance, options: Options, now: float) -> Ask | None:
        """Return what to ask, by what is known of the key; None: the key is to come into use."""
        quota, cost = self.quota, self.cost
        if snapshot is None:
            demand, last, is_rich, epoch, round_trip = Demand(now), 0, False, 0, 0.0
            fill = 0.0 if options.fill == "empty" else 1.0
        else:
            view = BucketView(options.fill, instance.count)
            demand, last = Demand(snapshot.counted_at, snapshot.demand), int(snapshot.last_want)
            view.recall(snapshot)
            fill, round_trip = view.fill, view.round_trip
            is_rich, epoch = view.is_rich(quota.largest_cost), view.epoch(quota, now)
        demand.observe(cost, now)
        if wanted(options.sizer, Usage(quota, demand.rate, last, 0, is_rich)) > cost:
            return None
        self._demand, self._instance, self._round_trip = demand, instance, round_trip
        self.snapshot, self.sent = snapshot, now
        max_wait = 0.0 if self.deadline == NO_WAIT else max(0.0, min(furthest(quota), self.deadline - now))
        revision, since = self.rank or (options.revision, instance.since)
        name, number, age = instance.name, next(instance.numbers), max(0.0, now - since)
        rank = options.weight, self.edition, revision, now >= instance.rules.looks_at
        self.ask = Ask(name, number, cost, cost, cost, 0, 0, max_wait, age, epoch, fill, round_trip, *rank)
        return self.ask

    def settle(self, grant: Grant, now: float) -> bytes | None:
        """Return what is to be known of the key, packed, if the call is admitted, and that is all there is to do."""
        ask, level = self.ask, grant.level
        assert ask is not None
        if (
            grant.granted != self.cost
            or grant.starts_in > 0.0
            or grant.quota is not None
            or now >= self.sent + grant.lease
            or 0 < ask.epoch != grant.epoch
            or not is_plenty(level, self.quota, _LATEST)
        ):
            return None
        instances, demand = grant.active_instances, self._demand
        self._instance.count.learn(instances, now)
        if ask.look:
            self._instance.rules.hear(grant.rules, now)
        self._level, self._binding = level, binding_of(grant.levels, self.quota)
        round_trip = smoothed(self._round_trip, now - self.sent)
        return pack(now, demand.rate, demand.at, self.cost, grant.epoch, level, max(1, instances), round_trip, now)

    def decision(self, _now: float) -> Decision:
        """Say all that a caller wants to be told."""
        return decision(self.quota, self._level, 0.0, "store", self._binding)


Settled = AdmissionResult | SingleAsk
"""How one call was settled: by an entry, or by a single ask."""
