"""One token bucket that instances lease from: the arithmetic of `lua/*.lua`, in Python, for `memory://` and for proofs.

It never admits more than burst + rate * t, although instances spend without asking. Leased tokens are *outstanding*
until they are reported spent, given back or expired. Refill stops where level + outstanding reaches the burst. Tokens
that are spent in a window are of two kinds. Some were in the bucket or outstanding when the window opened: together at
most the burst. The others were refilled since: at most rate * t.

Times are whole microseconds; within a bucket they count from its birth. The Lua files explain each rule; the names
here are theirs, and tests/lua holds the two copies against each other.
"""

import math
from copy import deepcopy

from batchlimit.bucket import fair_share
from batchlimit.bucket.fair_share import FAR, HEARD, LATER, LONGEST, PACE, REMEMBERED, SILENT, SLOWEST, SOONEST
from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level
from batchlimit.bucket.spendable import InstanceEntry, Reserved, SpendableBucket
from batchlimit.quota.quota import Quota

_SECOND = 1_000_000


class Bucket(SpendableBucket):
    """The levels of one quota's bandwidths and what is leased of them; `now` is an instant in us, never a clock."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<Bucket {self._quota}: levels {self._levels}, outstanding {self._table.outstanding}>"

    def take(self, quota: Quota, ask: Ask, now: int) -> Grant:
        """Lease whole tokens to one instance, from every bandwidth or from none, within the instance's fair share."""
        self._refill_to(now, ask.instance, fair_share.lease_of(self._bands))
        instance = self._table.instances.get(ask.instance) or self._table.enter(ask.instance, self._now)
        if ask.seq < instance.seq:
            return self._grant(quota, instance, 0, 0, 0, 0)
        if ask.seq == instance.seq and instance.granted > 0 and self._now < instance.expires:
            starts_in, kept = max(0, instance.starts - self._now), max(0, instance.held - instance.granted)
            return self._grant(quota, instance, instance.granted, kept, starts_in, 0)
        self._refused += ask.refused
        self._shadow += ask.shadow_refused
        if instance.weight != ask.weight:
            self._table.weigh(instance, ask.weight, self._now)
        self._agree(quota, ask, instance)
        self._report(instance, ask)
        return self._answer(quota, instance, ask)

    def give_back(self, back: GiveBack, now: int) -> int:
        """Credit an instance's unspent and refunded tokens, once, as far as there is room below the burst."""
        self._refill_to(now, back.instance, math.inf)
        instance = self._table.instances.get(back.instance)
        if instance and back.seq <= instance.seq:
            return 0
        if back.refund > 0:
            instance = instance or self._table.enter(back.instance, self._now)
        returned = back.refund + (self._settle(instance, back) if instance else 0)
        self._used -= returned
        return self._credit(returned)

    def peek(self, now: int) -> Level:
        seen = deepcopy(self)  # which nothing is written to
        seen._refill_to(now, "", fair_share.lease_of(seen._bands))
        return Level(math.floor(min(seen._levels)), seen._table.outstanding, seen._table.active, seen._told())

    def reset(self, now: int, *, forget: bool) -> tuple[float, ...]:
        """Fill up to what is leased; return the tokens there were. `forget`: the next asker's quota holds."""
        self._refill_to(now, "", fair_share.lease_of(self._bands))
        before = self._told()
        if forget:
            self._reserved, self._since, self._rank, self._heard, self._paused = None, -FAR, (0, 0), None, None
        gate = self._gate if self._left else None
        for i, (band, level) in enumerate(self._each()):
            if i != gate:
                self._levels[i] = max(level, band.burst - self._table.outstanding)
        return before

    def pause(self, lasting: int, now: int) -> int:
        """Admit nothing for so long (us), or until the pause ends that there is; return how long that is."""
        self._refill_to(now, "", math.inf)
        if self._since is None:
            self._since = -FAR
        lasting = min(lasting, LONGEST)
        if lasting > self._left:
            self._paused, gate = self._now + lasting, self._gate
            self._levels[gate] = min(self._levels[gate], -lasting * self._bands[gate].rate)
        return self._left

    def resume(self, now: int) -> bool:
        """Lift a pause; False: there is none. What would be owed without it is at most what is outstanding."""
        if self._paused is None or self._paused <= max(self._now, now - self._epoch):
            return False  # and the clock is not known to be so late: the script writes nothing
        self._refill_to(now, "", math.inf)
        self._paused, gate = None, self._gate
        self._levels[gate] = max(self._levels[gate], min(0, -self._table.outstanding))
        return True

    @property
    def _gate(self) -> int:
        return fair_share.quickest(self._bands)

    @property
    def _pace(self) -> float:
        pace = fair_share.pace_of(self._bands, self._table.active)
        return pace if self._paused is None else min(pace, SOONEST + LATER * max(0, self._now - self._paused))

    def _refill_to(self, now: int, own: str, every: float) -> None:
        self._is_small = False
        self._tell(now)
        over = self._table.over(self._now, own, every)
        for _, instance in over:
            self._refill(max(self._time, instance.expires))
            self._table.settle(instance, 0)
            instance.granted = 0
        self._refill(self._now)
        for name, instance in over:
            if instance.is_over(self._now):
                self._table.forget(name, instance, self._now)

    def _agree(self, quota: Quota, ask: Ask, instance: InstanceEntry) -> None:
        """Obey the quota of the highest rank, and of one rank the younger one; see take.lua."""
        since, rank = self._now - round(ask.age * _SECOND) + (FAR if ask.rules else 0), (ask.rules, ask.revision)
        if self._since is None:
            self._since, self._rank = since, rank
        heard = self._now if self._heard is None else self._heard
        is_above = rank > self._rank or (rank == self._rank and since >= self._since)
        is_first, is_changed = is_above or self._now - heard >= SILENT, False
        if is_first and quota != self._quota:
            self._reconfigure(quota)
            is_changed = True
        if quota == self._quota and (is_first or rank == self._rank):
            is_due = instance.seq < 0 or instance.seen // HEARD != self._now // HEARD
            is_old = is_due and self._now - heard >= HEARD
            is_old = is_old or is_changed or rank != self._rank
            if self._heard is not None and is_old:
                self._heard = self._now
            self._since = max(self._since, since) if rank == self._rank and not is_changed else since
            self._rank = rank
        if self._heard is None and (quota != self._quota or any(self._rank)):
            self._heard = self._now

    def _reconfigure(self, quota: Quota) -> None:
        left, gate = self._left, self._gate
        self._levels[gate] += left * self._bands[gate].rate
        shares = [level / band.burst for band, level in self._each()]
        self._quota, self._version, self._bands = quota, self._version + 1, fair_share.bands_of(quota)
        shares += [min(1, *shares)] * len(self._bands)
        self._levels = [
            min(share * band.burst, max(0, band.burst - self._table.outstanding))
            for band, share in zip(self._bands, shares, strict=False)
        ]
        if left:
            gate = self._gate
            self._levels[gate] = min(0, self._levels[gate]) - left * self._bands[gate].rate

    def _report(self, instance: InstanceEntry, ask: Ask) -> None:
        kept = min(ask.held, instance.held)
        back = min(ask.back, instance.returnable(kept, self._now))
        self._used -= back
        self._table.settle(instance, kept)
        self._credit(back)

    def _credit(self, tokens: int) -> int:
        """Put tokens back as far as there is room (none where a burst was just lowered); how many whole ones."""
        rooms = [self._room(i) for i in range(len(self._bands))]
        self._levels = [level + min(tokens, room) for level, room in zip(self._levels, rooms, strict=True)]
        return min(tokens, *(math.floor(room) for room in rooms))

    def _room(self, i: int) -> float:
        """Return how many tokens may come back to a bandwidth: none that end a pause earlier."""
        band = self._bands[i]
        most: float = band.burst - self._table.outstanding
        if self._left and i == self._gate:
            most = min(most, -self._left * band.rate)
        return max(0, most - self._levels[i])

    def _settle(self, instance: InstanceEntry, back: GiveBack) -> int:
        kept = min(back.held, instance.held)
        unspent = min(back.tokens, instance.returnable(kept, self._now))
        self._table.settle(instance, kept)
        instance.seq, instance.granted = back.seq, 0
        if back.refund > 0:
            self._known = instance.known = self._now + REMEMBERED
        elif kept == 0:
            self._table.forget(back.instance, instance, self._now)
        return unspent

    def _answer(self, quota: Quota, instance: InstanceEntry, ask: Ask) -> Grant:
        granted, wait, told, accrued = self._offer(instance, ask)
        starts_in, overweight = 0, self._table.overweight(instance)
        if granted < ask.need:
            granted, starts_in = self._later(instance, ask, wait, overweight)
        kept, instance.seq, instance.seen, instance.granted = instance.held, ask.seq, self._now, 0
        if granted < ask.need:
            if accrued >= ask.need and (ask.need > 1 or (overweight > 0 and ask.max_wait > 0)):
                self._reserve(ask, wait)
            return self._grant(quota, instance, 0, kept, 0, told)
        if ask.need > 0 and self._reserved and self._reserved.name == ask.instance:
            self._reserved = None
        self._lend(instance, ask, granted, self._now + starts_in)
        if ask.need > 0 or (granted > 0 and granted >= accrued):
            self._table.serve(instance, self._now + starts_in)
        if overweight > 0 and granted >= ask.queued > 0:
            self._table.ease(instance, self._now)
        return self._grant(quota, instance, granted, kept, starts_in, 0)

    def _reserve(self, ask: Ask, wait: int) -> None:
        if self._reserved is None or self._reserved.name == ask.instance:
            patience = 2 * max(PACE, self._pace) + (wait if ask.max_wait > 0 else 0)
            self._reserved = Reserved(ask.instance, ask.need, self._now + patience)

    def _offer(self, instance: InstanceEntry, ask: Ask) -> tuple[int, int, int, float]:
        claims, need = self._table.claims(instance), ask.need
        is_spent = fair_share.spends(self._bands, claims)
        granted: float = ask.queued if is_spent else ask.want
        wait, told, accrued = 0.0, 0.0, math.inf
        foreign = self._reserved if self._reserved and self._reserved.name != ask.instance else None
        for band, whole in self._each():
            level = whole - (foreign.tokens if foreign else 0)
            part, mine, fair = fair_share.division(band, level, claims, self._now, need, is_spent)
            ahead = fair_share.ahead_of(band, level, part, mine, instance.held, self._table.outstanding)
            granted = min(granted, level, fair, max(ask.queued, ahead))
            by_share, beside = fair_share.waits_for(need, band, level, part, fair)
            short = (need - whole) / band.rate
            if foreign and foreign.ends > self._now + short:  # else it takes nothing from the need
                short = (need - level) / band.rate
            wait, told, accrued = max(wait, by_share), max(told, short, 0 if is_spent else beside), min(accrued, mine)
        return max(0, math.floor(granted)), fair_share.rounded(wait), fair_share.rounded(told), accrued

    def _later(self, instance: InstanceEntry, ask: Ask, wait: int, overweight: int) -> tuple[int, int]:
        max_wait = round(ask.max_wait * _SECOND)
        most: float = max_wait
        if overweight < 0:
            most = min(most, max(self._pace, *(ask.need / band.rate for band in self._bands)))
        if wait > most or (self._reserved and self._reserved.name != ask.instance):
            return 0, 0
        granted: float = ask.queued
        claims, ahead = self._table.claims(instance), max(wait, math.ceil(min(self._pace, max_wait)))
        is_spent = fair_share.spends(self._bands, claims)
        parts = [(*each, *fair_share.division(*each, claims, self._now, ask.need, is_spent)) for each in self._each()]
        for band, level, part, _, fair in parts:
            flow = band.rate * ahead
            granted = min(granted, level + flow, fair + flow * part, band.burst - self._table.outstanding)
        tokens = math.floor(granted)
        if overweight > 0:
            waits = [fair_share.waits_for(tokens, band, level, part, fair)[0] for band, level, part, _, fair in parts]
            ahead = fair_share.rounded(max(waits))
        return tokens, ahead

    def _lend(self, instance: InstanceEntry, ask: Ask, granted: int, starts: int) -> None:
        is_spent = fair_share.spends(self._bands, self._table.claims(instance))
        waits = is_spent or granted == ask.queued
        trip = min(round(ask.round_trip * _SECOND), SLOWEST)
        lease = fair_share.lease_of_grant(list(self._each()), granted, trip, waits=waits, is_later=starts > self._now)
        self._levels = [level - granted for level in self._levels]
        self._used += granted
        if is_spent and starts == self._now and instance.held == 0:
            ends = starts + fair_share.lease_of_spend(self._bands, lease)  # until then a caller may be admitted by it
            instance.granted, instance.starts, instance.expires = granted, starts, ends
        else:
            self._table.lend(instance, granted, starts, starts + lease)

    def _grant(
        self, quota: Quota, instance: InstanceEntry, granted: int, kept: int, starts_in: int, retry_after: int
    ) -> Grant:
        thousandths = [math.floor(level * 1000) for level in self._levels]
        return Grant(
            granted=granted,
            kept=kept,
            starts_in=starts_in / _SECOND,
            lease=max(0, instance.expires - self._now - starts_in) / _SECOND,
            retry_after=retry_after / _SECOND,
            level=min(thousandths) // 1000,
            active_instances=self._table.active,
            epoch=self._epoch,
            version=self._version,
            quota=None if quota == self._quota else self._quota,
            levels=tuple([each / 1000 for each in thousandths]),
        )
