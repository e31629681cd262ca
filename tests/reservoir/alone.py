"""One process alone at its bucket, in virtual time: a reservoir, its background thread, and callers of all kinds."""

import itertools
from random import Random

from batchlimit.base.waiting import NO_WAIT
from batchlimit.bucket.messages import GiveBack
from batchlimit.quota.overrides.code import Rank
from batchlimit.quota.overrides.override import KeyRule
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.bucket_view import KeySnapshot
from batchlimit.reservoir.options import Instance, Options
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.sizing import BatchSizer
from batchlimit.reservoir.waiter import NOBODY, Admit, Fetch, Refuse, Retired, Wait, Waiter
from batchlimit.stores import MemoryStore
from tests.reservoir.world import NoRules, Waking

_KEY = "key"
_TICK = 1e-6


class Alone:
    """A call takes no time but for the `round_trip` of its requests (s)."""

    def __init__(self, quota: Quota, sizer: BatchSizer, round_trip: float, chance: Random) -> None:
        self.now = 1000.0
        self._quota, self.round_trip, self._chance = quota, round_trip, chance
        self._store = MemoryStore(clock=lambda: self.now + _TICK / 2)  # it cuts off what is smaller than one
        self._instance = Instance("a", itertools.count(1), NoRules())
        self._options = Options(sizer=sizer)
        self._reservoir = self._new(None)

    @property
    def owed(self) -> int:
        return self._reservoir.state.overdraft.total

    def call(self, cost: int, patience: float = 0.0) -> float:
        """Return 0.0 for a caller that is admitted, else when it is told to come back (s)."""
        reservoir = self._live()
        if self.now < reservoir.tokens.take(cost):
            return 0.0
        waiter = Waiter(cost, self.now + patience if patience else NO_WAIT, Waking())
        reservoir.admission.join(waiter)
        while True:
            step = reservoir.step(waiter, self.now)
            reservoir.to_wake()
            match step:
                case Admit(before):
                    assert self.now < before
                    return 0.0
                case Refuse(retry_after):
                    return retry_after
                case Fetch():
                    self._send(step)
                case Wait(seconds):
                    self.pass_by(_TICK if seconds is None else seconds)
                case Retired():
                    return self.call(cost)
                case _:
                    raise AssertionError(step)

    def deny(self, cost: int) -> float:
        """Return when to come back (s) if memory refuses, as to who asks for several keys; else 0.0."""
        reservoir = self._live()
        wait = reservoir.forecast.denied_for(cost, self.now)
        assert reservoir.admission.deny(cost, self.now) == (wait > 0.0)
        return wait

    def refund(self, tokens: int) -> None:
        back = self._live().lifecycle.refund(Waiter(tokens, NO_WAIT, NOBODY), self.now)
        if back is not None:
            self._give_back(back)

    def owe(self, tokens: int) -> None:
        self._live().lifecycle.debit(tokens, self.now)

    def pass_by(self, seconds: float) -> None:
        """Let time go by; the background thread comes whenever it is due."""
        end = self.now + seconds
        while (due := max(self._reservoir.lifecycle.due(), self.now)) <= end:
            self.now = due
            match self._reservoir.lifecycle.tend(due):
                case Fetch() as fetch:
                    self._send(fetch)
                case GiveBack() as back:
                    self._give_back(back)
                case None:
                    self.now += _TICK
        self.now = max(self.now, end)

    def _live(self) -> Reservoir:
        if (old := self._reservoir).state.is_retired:
            self._reservoir = self._new(old.lifecycle.snapshot)
        return self._reservoir

    def _new(self, snapshot: KeySnapshot | None) -> Reservoir:
        rule, rank = KeyRule(self._quota), Rank(0, 0.0)
        return Reservoir(rule, self._instance, self._options, self.now, rank=rank, snapshot=snapshot)

    def _send(self, fetch: Fetch) -> None:
        self.now += self.round_trip / 2
        grant = self._store.take(_KEY, self._quota, fetch.ask)
        self.now += self.round_trip / 2
        self._reservoir.granted(fetch, grant, self.now, self._chance.uniform(0.75, 1.25))
        self._reservoir.to_wake()

    def _give_back(self, back: GiveBack) -> None:
        self.now += self.round_trip / 2
        self._store.give_back(_KEY, self._quota, back)
        self.now += self.round_trip / 2
        self._reservoir.gave_back(self.now)
        self._reservoir.to_wake()


def costs(largest: int, chance: Random) -> int:
    """Return a cost: mostly a small one."""
    return min(largest, chance.choice([1, 1, 1, 1, 2, 3, chance.randint(1, largest), largest]))


def pauses(quota: Quota, chance: Random) -> float:
    """Return for how long nobody comes (s)."""
    slowest, fastest = min(each.rate for each in quota.bandwidths), max(each.rate for each in quota.bandwidths)
    filling = chance.random() * min(100.0, quota.largest_cost / slowest)
    return chance.choice([0.0, 0.001, 0.01, 0.1, 0.3, 1.0, 3 * chance.random() / fastest, filling, 1 / fastest])
