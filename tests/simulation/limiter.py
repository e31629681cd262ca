"""A limiter in virtual time whose key comes into use as in the product: calls spend at the bucket, or the key leases.

keyspace/spending.py says which. What a limiter does beside it is done here by the same steps as in batchlimit/sync.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from batchlimit.base.key import place_of, stored
from batchlimit.base.waiting import NO_WAIT
from batchlimit.bucket.messages import Spent
from batchlimit.errors import StoreUnavailable
from batchlimit.keyspace.census import Tallies
from batchlimit.keyspace.kept_keys import DormantKeys
from batchlimit.keyspace.spending import KeySpend, Outcome, Spending, is_charged
from batchlimit.quota.lookup import Policies
from batchlimit.quota.overrides.code import Code
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.waiter import Refuse
from tests.simulation.agenda import Agenda
from tests.simulation.instance import Caller, Process, Witness, forget
from tests.simulation.network import Post
from tests.simulation.server import KEY, Server

Admitted = Callable[[bool], None]
_PLACE = place_of(stored(KEY))


class _Call(NamedTuple):
    """One caller: what it wants, whom to tell, and what it does where its key is in use."""

    cost: int
    patience: float
    then: Admitted
    by_entry: Callable[[], None]
    priority: int = 1


class Limiter(Process):
    """A process whose key is in use, dormant or unknown; callers come by `call` or `decide`."""

    def __init__(self, name: str, quota: Quota, agenda: Agenda, server: Server, post: Post, witness: Witness) -> None:
        super().__init__(name, quota, agenda, server, post, witness)
        self.spends = 0
        """Calls of the store that spent, or were to."""
        self._told, self._tidies_at = 0.0, math.inf
        self._in_use: dict[str, Process] = {}
        self._dormant = DormantKeys(self._options.idle_after, self._options.max_keys)
        self._spending: Spending = Spending(
            self._in_use,
            self._dormant,
            self._instance,
            self._options,
            clock=self.clock,
            tallies=Tallies(Policies()),
            code=Code(lambda _key: quota, "closed", "enforce", self._rank),
        )

    @property
    def calls(self) -> int:
        """Messages to the server."""
        return super().calls + self.spends

    def call(self, cost: int, patience: float = 0.0, then: Admitted = forget, *, priority: int = 1) -> None:
        """One caller comes."""
        by_entry = partial(super().call, cost, patience, then, priority=priority)
        self._come(_Call(cost, patience, then, by_entry, priority))

    def decide(self, then: Callable[[float], None]) -> None:
        """One caller comes for one token, and is told after how many seconds to come again (0.0: it was admitted)."""

        def tell(admitted: bool) -> None:
            then(0.0 if admitted else self._told)

        self._come(_Call(1, 0.0, tell, lambda: self._do(lambda: self._stand_in_line(1, 0.0, tell, 1))))

    def _come(self, call: _Call) -> None:
        if self.gone or self.stopped or (begun := self._spending.begin({KEY: call.cost})) is None:
            self._use()
            call.by_entry()
            return
        (spend,) = begun
        self.spends += 1
        self._post.send(
            self.name,
            lambda: self._server.spend(spend.message),
            lambda spent: self._do(lambda: self._settle(spend, None if spent is None else (spent,), call)),
            lambda: self._do(lambda: self._settle(spend, StoreUnavailable("no answer"), call)),
        )

    def _settle(self, spend: KeySpend, outcome: Outcome, call: _Call) -> None:
        kept = dict[str, bytes]()
        told = self._spending.hear_of([spend], outcome, self.clock(), kept)
        self._tidy_at(self._spending.keep(kept, self.clock()))
        if is_charged(told):
            self._spend(call.cost)
            call.then(True)
            return
        self._use()
        if told is None or not self._resume(spend, told, call):
            call.by_entry()

    def _resume(self, spend: KeySpend, outcome: tuple[Spent, ...] | StoreUnavailable, call: _Call) -> bool:
        """Have the key's entry take in what came of a spend in vain; False: it is in use by now."""
        now, fetch = self.clock(), self._spending.fetch(spend)
        caller = Caller(call.cost, now + call.patience if call.patience else NO_WAIT, now, call.then, call.priority)
        if not self.reservoir.adopt(caller, fetch):
            return False
        self.spends -= 1  # the reservoir counts it from now on
        self._callers[id(caller)] = caller
        if isinstance(outcome, StoreUnavailable):
            self.reservoir.failed(fetch, outcome, now)
        else:
            self.reservoir.granted(fetch, spend.refusal(), now, self._chance.uniform(0.75, 1.25))
        self._walk(caller)
        return True

    def _use(self) -> None:
        if not self._in_use:
            self.reservoir = self._new(self._dormant.take(_PLACE))
            self._in_use[_PLACE] = self

    def _retire(self) -> None:
        snapshot = self.reservoir.lifecycle.snapshot
        super()._retire()
        self._in_use.clear()
        if snapshot is not None:
            self._dormant.put(_PLACE, snapshot, self.clock())
            self._tidy_at(self._dormant.due)

    def _look_later(self) -> None:
        if self._in_use:
            super()._look_later()

    def _tidy_at(self, instant: float) -> None:
        if instant < self._tidies_at:
            self._tidies_at = instant
            self._agenda.after(max(0.0, instant - self.clock()), lambda: self._tidy(instant))

    def _tidy(self, instant: float) -> None:
        if instant == self._tidies_at:
            self._tidies_at = math.inf
            self._tidy_at(self._dormant.forget_idle(self.clock()))

    def _end(self, caller: Caller, *, admitted: bool) -> None:
        verdict = caller.verdict
        self._told = verdict.retry_after if isinstance(verdict, Refuse) else 0.0
        super()._end(caller, admitted=admitted)
