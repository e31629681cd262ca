"""The slots of one limit, who holds them, and what an instance and the store say to each other about them.

SlotTable is the twin of `lua/lend.lua`, which says how it works.
"""

from dataclasses import dataclass
from typing import NamedTuple

TICK = 8
"""The unit of a token, as far as the clock tells it (us)."""
KEPT = 60_000
"""How long a limit that nobody uses is kept, so that its token never starts again (ms)."""
LONGEST_WAIT = 3_600_000_000
"""A longer wait counts no more (us): times a weight it is still an exact number in Lua."""


class SlotAsk(NamedTuple):
    """What an instance tells and asks; each time all of it, so that a lost message changes nothing.

    Attributes:
        instance: Its ID, a dot, and a number that is new after each lease that it lost.
        limit: How many slots there are, as this instance was told.
        lease: For how long it asks (us).
        weight: Its part of the slots while instances compete.
        returned: Slots that it gave back so far.
        held: Slots that it knows to hold; the store may have lost some of them.
        target: Slots that it has use for now.
        waiting: For how many of those it waits if it does not get them.
        extra: Slots that it has use for soon.
        idle: Slots that it holds for no permit.
    """

    instance: str
    limit: int
    lease: int
    weight: int = 1
    returned: int = 0
    held: int = 0
    target: int = 0
    waiting: int = 0
    extra: int = 0
    idle: int = 0


class SlotReply(NamedTuple):
    """What the store answers.

    Attributes:
        granted: Slots that the instance got so far.
        token: Larger than that of every lease which was over before.
        keep: Slots that it may hold while others wait; -1: nobody else waits.
        fresh: The store did not know of all its slots: `granted` may be lower than before.
        lent: Slots that all instances hold.
        limit: How many slots there are: the least that an instance names.
        instances: How many instances hold slots or wait.
    """

    granted: int
    token: int
    keep: int
    fresh: bool
    lent: int
    limit: int
    instances: int


class SlotPush(NamedTuple):
    """What the store tells an instance that did not ask; see SlotReply."""

    instance: str
    granted: int
    token: int
    keep: int


@dataclass(slots=True)
class Borrower:
    """An instance that holds slots or waits; the fields are those of the hash."""

    name: str
    since: int
    held: int = 0
    ends: int = 0
    wants: int = 0
    weight: int = 1
    idle: int = 0
    limit: int = 0
    granted: int = 0
    told: int = 0

    def before(self, other: "Borrower", now: int) -> bool:
        """Whether it comes before another one: it holds less for its weight, or has waited longer, by its weight."""
        left, right = self.held * other.weight, other.held * self.weight
        if left != right:
            return left < right
        return self._rank(now) < other._rank(now)

    def _rank(self, now: int) -> tuple[int, int, int, str]:
        # How long it has waited, times its weight: of fewer slots than instances it gets its part by that.
        patience = min(max(0, now - self.since), LONGEST_WAIT) * self.weight
        return -patience, -self.weight, self.since, self.name


class SlotTable:
    """Lends slots to instances. It is pure: `now` (us) comes in, and what is to be published goes out."""

    __slots__ = ("_all", "_by_name", "_lease", "_now", "_weights", "expires", "lent", "limit", "token")

    def __init__(self) -> None:
        self._by_name: dict[str, Borrower] = {}
        self._all: list[Borrower] = []
        self._now = self._lease = self._weights = 0
        self.token = self.lent = self.limit = 0
        self.expires = 0  # us

    def lend(self, ask: SlotAsk, now: int) -> tuple[SlotReply, list[SlotPush]]:
        """Answer one instance; return what the others are to be told."""
        self._now, self._lease = now, ask.lease
        me, fresh = self._seen(ask)
        was_told = {each.name: each.told for each in self._all}
        before = {each.name: each.granted for each in self._all}
        self._share_out(me, ask)
        self._renew_token()
        pushes = self._tell_others(me, before, was_told)
        keep = self._keep(me)
        me.told = keep + 1
        if me.held == me.wants == 0:
            self._by_name.pop(me.name, None)
        else:
            self._by_name[me.name] = me
        ends = max(each.ends for each in self._all)
        ahead = self.token * TICK // 1000 - now // 1000
        self.expires = now // 1000 * 1000 + 1000 * (max((ends - now) // 1000, ahead) + KEPT)
        return SlotReply(me.granted, self.token, keep, fresh, self.lent, self.limit, len(self._all)), pushes

    def _seen(self, ask: SlotAsk) -> tuple[Borrower, bool]:
        """Return the instance that asks, as it is before it gets anything, and whether it was unknown."""
        me = self._by_name.get(ask.instance)
        self._by_name = {name: each for name, each in self._by_name.items() if each.ends > self._now}
        others = [each for each in self._by_name.values() if each is not me]
        self.limit = min([ask.limit, *(each.limit for each in others)])
        self.lent = sum(each.held for each in others)
        fresh = me is None or me.ends <= self._now
        if me is None or fresh:
            me = Borrower(ask.instance, since=self._now)
        held, me.granted = me.held, max(me.granted, ask.returned)
        me.held = min(me.held, me.granted - ask.returned)
        # It knows of more than this table: a failover or a restart has lost what it was granted.
        if (lost := ask.returned + ask.held - me.granted) > 0:
            still = max(0, min(lost, self.limit - self.lent - me.held))
            me.held, me.granted, fresh = me.held + still, me.granted + still, True
        self._all = [*others, me]
        self.lent += me.held
        me.ends, me.weight, me.idle, me.limit = self._now + ask.lease, ask.weight, ask.idle, ask.limit
        self._weights = sum(each.weight for each in self._all)
        if me.wants == 0 or (me.held < held and self._share(me) > 0):
            me.since = self._now
        me.wants = max(0, ask.target - me.held)
        return me, fresh

    def _share_out(self, me: Borrower, ask: SlotAsk) -> None:
        """The first one gets its part of what is free, and so on: one slot each where few are free."""
        while self.lent < self.limit and (one := self._first()):
            count = sum(each.wants > 0 for each in self._all)
            slots = max(1, min(one.wants, (self.limit - self.lent) // count))
            one.wants, one.since = one.wants - slots, self._now
            self._grant(one, slots)
        if slots := min(ask.extra, max(0, self.limit - self.lent) // (len(self._all) + 1)):
            self._grant(me, slots)
        me.wants = min(me.wants, ask.waiting)

    def _grant(self, one: Borrower, slots: int) -> None:
        one.held, one.granted, self.lent = one.held + slots, one.granted + slots, self.lent + slots

    def _renew_token(self) -> None:
        self.token = max(self.token + 1, self._now // TICK)

    def _tell_others(self, me: Borrower, before: dict[str, int], was_told: dict[str, int]) -> list[SlotPush]:
        pushes = list[SlotPush]()
        for one in self._all:
            keep, told = self._keep(one), was_told[one.name]
            recalls = keep >= 0 and (one.idle > 0 or one.held > keep) and (told == 0 or keep + 1 < told)
            if one is not me and (one.granted > before[one.name] or recalls):
                one.told = keep + 1
                pushes.append(SlotPush(one.name, one.granted, self.token, keep))
        return pushes

    def _first(self, other: Borrower | None = None) -> Borrower | None:
        """Return the first of those that want slots, except one."""
        found: Borrower | None = None
        for one in self._all:
            if one is not other and one.wants > 0 and (found is None or one.before(found, self._now)):
                found = one
        return found

    def _share(self, one: Borrower) -> int:
        """Return the whole slots of an instance, if all are divided by weight."""
        return self.limit * one.weight // self._weights

    def _fair(self, one: Borrower, first: Borrower) -> int:
        """Return the slots up to which nobody asks an instance to give some back, if `first` waits."""
        return max((first.held + 1) * one.weight // first.weight, self._share(one))

    def _is_over(self, one: Borrower, first: Borrower) -> bool:
        """Whether it has more than its share, and has for a third of a lease, while `first` has less than its part."""
        wants_its_part = first.held * self._weights < self.limit * first.weight
        return one.held > self._share(one) and wants_its_part and 3 * (self._now - one.since) >= self._lease

    def _keep(self, one: Borrower) -> int:
        """Return how many slots an instance may hold while others wait; -1: nobody else waits."""
        first = self._first(one)
        if first is None:
            return self._share(one) if self.lent > self.limit else -1
        mine = self._share(one) if self._is_over(one, first) else self._fair(one, first)
        if one.held > mine:
            return mine
        others = any(each.held > self._fair(each, first) for each in self._all)
        return one.held if first.held > 0 or others else 0
