"""An instance: a real Reservoir behind an API that has no threads; whatever an API does takes no time here."""

import itertools
import math
from collections.abc import Callable
from random import Random

from batchlimit.base.waiting import NO_WAIT
from batchlimit.bucket.messages import Ask, GiveBack, Grant, Spend, Spent
from batchlimit.quota.failure_policy import CLOSED
from batchlimit.quota.overrides.code import Rank
from batchlimit.quota.overrides.known import OverridesCache, Published
from batchlimit.quota.overrides.override import KeyRule, NotUnderstood
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.bucket_view import KeySnapshot
from batchlimit.reservoir.options import Instance, Options
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.sizing import DEFAULT_SIZER, BatchSizer
from batchlimit.reservoir.waiter import NOBODY, Admit, Fail, Fetch, Refuse, Retired, Wait, Waiter
from tests.reservoir.world import figures as figures_of
from tests.simulation.agenda import SECOND, Agenda, Happening
from tests.simulation.network import Post
from tests.simulation.server import KEY, Server


class Witness:
    """The observer of a fleet; this one looks away."""

    def spent(self, instance: "Process", cost: int) -> None:
        """A caller was admitted."""

    def passed(self, instance: "Process", cost: int) -> None:
        """A caller was admitted by no tokens of the bucket: because everything is, or though it was to be refused."""

    def denied(self, instance: "Process") -> None:
        """A caller was refused from memory."""

    def asked(self, instance: "Process", ask: Ask, grant: Grant) -> None:
        """The bucket carried out an ask; the instance may never learn of it."""

    def charged(self, instance: "Process", spend: Spend) -> None:
        """The bucket was charged by a spend; its caller may never learn of it."""

    def ended(self, instance: "Process", caller: "Caller") -> None:
        """A caller that stood in line has its verdict."""

    def reloaded(self, instance: "Process") -> None:
        """An instance goes by a file that has changed."""

    def refunded(self, tokens: int) -> None:
        """Spent tokens are there again, at an instance or in the bucket."""


class Caller(Waiter):
    """A waiter that remembers when it came, and whom to tell."""

    __slots__ = ("came", "then")

    def __init__(
        self, cost: int, deadline: float, came: float, then: Callable[[bool], None], priority: int = 1
    ) -> None:
        super().__init__(cost, deadline, _BELL, priority=priority)
        self.came = came
        self.then = then


class _Bell:
    """The instance walks with each waiter that is to be woken: there is nothing to ring."""

    def set(self) -> None:
        pass


_BELL = _Bell()
_MOMENT = 1e-3
"""Seconds between two looks for overrides that end."""


def forget(admitted: bool) -> None:
    """Ignore the answer."""


class Process:
    """One process: spends by the same steps as `batchlimit.sync`, keeps its own clock, may be stopped and may die."""

    def __init__(
        self,
        name: str,
        quota: Quota,
        agenda: Agenda,
        server: Server,
        post: Post,
        witness: Witness,
        *,
        idle_after: float = 10.0,
        sizer: BatchSizer = DEFAULT_SIZER,
        weight: int = 1,
        revision: int = 0,
    ) -> None:
        self.name, self.quota = name, quota
        self.admitted = self.refused = self.failed = 0
        """Tokens, as callers were told."""
        self.refunded = 0
        self.was_disturbed = False
        """Whether it was stopped, or a fetch was interrupted that others waited for: then they wait once more."""
        self._agenda, self._server, self._post, self._witness = agenda, server, post, witness
        self._options = Options(sizer=sizer, idle_after=idle_after, weight=weight, revision=revision)
        self._chance = Random(name)
        self._offset = 1000.0 + 1000.0 * self._chance.random()
        since, self.known = self.clock(), OverridesCache(self.clock, self._read_rules)
        self._rank = Rank(revision, since)
        self._instance = Instance(name, itertools.count(1), self.known)
        self._callers: dict[int, Caller] = {}
        self._frozen: list[Happening] | None = None
        self._looks_at = math.inf
        self._past = (0, 0, 0)
        self._paid = 0  # of what callers owed to the present reservoir
        self._returned: set[int] = set()
        self.gone = False
        self.reservoir = self._new(None)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.reservoir}>"

    def clock(self) -> float:
        """Seconds on a clock of its own."""
        return self._offset + self._agenda.now / SECOND

    @property
    def stopped(self) -> bool:
        return self._frozen is not None

    @property
    def calls(self) -> int:
        """Messages to the server."""
        return self._past[2] + self.reservoir.state.calls

    @property
    def held(self) -> int:
        """Tokens for which callers of this instance could be admitted, now or later."""
        return self.reservoir.state.lease.leased if self._lives else 0

    @property
    def spendable(self) -> int:
        """Those that they could be admitted for now."""
        lease = self.reservoir.state.lease
        return lease.leased - lease.pending if self._lives and not lease.borrowed else 0

    @property
    def _lives(self) -> bool:
        return not self.gone and self.clock() < self.reservoir.tokens.expires

    @property
    def waiting(self) -> list[Caller]:
        """Callers in line."""
        return list(self._callers.values())

    @property
    def in_line(self) -> list[Waiter]:
        """Those of them that have no verdict yet."""
        return list(self.reservoir.state.queue)

    @property
    def awaited(self) -> int:
        """Tokens that somebody waits for, or that are owed."""
        return self.reservoir.state.queue.cost + self.reservoir.state.overdraft.waiter.beyond

    def call(
        self, cost: int, patience: float = 0.0, then: Callable[[bool], None] = forget, *, priority: int = 1
    ) -> None:
        """One caller comes: first the hot path, that of `try_acquire`, then the line."""
        if self.gone:
            return
        if self._frozen is not None:
            self._frozen.append(lambda: self.call(cost, patience, then, priority=priority))
            return
        if cost > self.reservoir.state.most:
            then(False)  # a ValueError
            return
        if not self._callers and self._spend_at_once(cost):
            then(True)
        elif not patience and self.reservoir.forecast.denies(cost, self.clock()):
            self.reservoir.tokens.refused += cost
            self.refused += cost
            self._witness.denied(self)
            then(False)
        else:
            self._do(lambda: self._stand_in_line(cost, patience, then, priority))

    def refund(self, cost: int) -> None:
        """A caller takes back what it was admitted for."""
        self._do(lambda: self._refund(cost))

    def debit(self, cost: int) -> None:
        """A caller used more than it was admitted for: it is charged as tokens come."""
        self._do(lambda: self.reservoir.lifecycle.debit(cost, self.clock()))

    def spend(self, cost: int) -> None:
        """A caller of another limiter comes, in this process, where the key is not in use."""
        self._do(lambda: self._ask_to_spend(cost))

    def _ask_to_spend(self, cost: int) -> None:
        sent, in_force = self.clock(), self.known.in_force
        rule = in_force.rule(KEY, KeyRule(self.quota))
        if not rule.is_plain or rule.quota.denies_all or cost > rule.quota.largest_cost:
            return
        age = max(0.0, sent - self._rank.since)
        spend = Spend(KEY, rule.quota, cost, age, rules=in_force.edition, revision=self._rank.revision)

        def carry_out() -> Spent | None:
            told = self._server.spend(spend)
            if told is not None and told.is_charged:
                self._witness.charged(self, spend)
            return told

        def admit(told: Spent | None) -> None:
            if told is not None and told.is_charged and self.clock() < sent + self._post.timeout:
                self._witness.spent(self, cost)

        self._post.send(self.name, carry_out, lambda told: self._do(lambda: admit(told)), lambda: None)

    def stall(self, seconds: float, cost: int) -> None:
        """Stop the process just after a thread took `cost` tokens; it looks at the clock when it goes on."""
        if self._frozen is None and not self.gone:
            before, is_free = self.reservoir.tokens.take(cost), self._is_free
            self._frozen = []
            self.was_disturbed = True
            self._agenda.after(seconds, lambda: self._thaw(cost, before, is_free=is_free))

    def reload(self, quota: Quota) -> None:
        """Go by another quota from now on: a file says so."""
        self._do(lambda: self._reload(quota))

    def _reload(self, quota: Quota) -> None:
        self.quota, self._rank = quota, Rank(self._options.revision, self.clock())
        self.reservoir.rule.recode(KeyRule(quota), CLOSED, self._rank, self.clock())
        self._witness.reloaded(self)

    def leave_line(self, place: int) -> None:
        """A caller is interrupted, or cancelled, wherever it stands."""
        self._do(lambda: self._interrupt(place))

    def crash(self) -> None:
        """Kill the process: nothing is given back, and what is on its way finds nobody."""
        self.gone = True

    def close(self) -> None:
        """End in good order: who waits is failed, and what is left goes back if nothing is under way."""
        self._do(self._close)

    @property
    def figures(self) -> tuple[int, int, int]:
        """(admitted, refused, waiting) by the reservoirs' own count: to be what callers were told, exactly."""
        now = figures_of(self.reservoir)
        return self._past[0] + now.admitted, self._past[1] + now.refused, now.waiting

    def _new(self, snapshot: KeySnapshot | None) -> Reservoir:
        rule, instance, options = KeyRule(self.quota), self._instance, self._options
        return Reservoir(rule, instance, options, self.clock(), key=KEY, snapshot=snapshot, rank=self._rank)

    def _do(self, happening: Happening) -> None:
        """Do it now; or, if the process is stopped, when it goes on."""
        if self.gone:
            return
        if self._frozen is not None:
            self._frozen.append(happening)
            return
        happening()
        while awake := self.reservoir.to_wake():
            for waiter in awake:
                self._walk(waiter)
        if paid := self.reservoir.state.overdraft.paid - self._paid:
            self._paid += paid
            self._spend(paid, is_free=self._is_free)
        self._look_later()

    def _spend_at_once(self, cost: int) -> bool:
        """As the APIs do: a token that is laid out, or else under the lock."""
        leased, is_free = self.reservoir.tokens, self._is_free
        before = next(leased.lock_free, NO_WAIT) if cost == 1 else NO_WAIT
        before = before if before != NO_WAIT else leased.take(cost)
        if before == NO_WAIT:
            before = self.reservoir.requests.take_low(cost)
            self._look_later()
        if self.clock() < before:
            self._spend(cost, is_free=is_free)
            return True
        if before != -math.inf:
            leased.took_late(cost)
        return False

    @property
    def _is_free(self) -> bool:
        """Whether what is here is not the bucket's."""
        return self.reservoir.state.lease.borrowed

    def _spend(self, cost: int, *, is_free: bool = False) -> None:
        self.admitted += cost
        if is_free:
            self._witness.passed(self, cost)
        else:
            self._witness.spent(self, cost)

    def _stand_in_line(self, cost: int, patience: float, then: Callable[[bool], None], priority: int) -> None:
        now = self.clock()
        caller = Caller(cost, now + patience if patience else NO_WAIT, now, then, priority)
        self.reservoir.admission.join(caller)
        self._callers[id(caller)] = caller
        self._walk(caller)

    def _walk(self, waiter: Waiter) -> None:
        """What a thread does that waits in line, until it sleeps or leaves."""
        while (caller := self._callers.get(id(waiter))) is not None:
            match self.reservoir.step(caller, self.clock()):
                case Admit(before) as verdict:
                    if self.clock() < before:
                        self._spend(caller.cost, is_free=verdict.borrowed or verdict.is_shadow)
                        self._end(caller, admitted=True)
                case Refuse():
                    self.refused += caller.cost
                    self._end(caller, admitted=False)
                case Fail(error):
                    self.failed += caller.cost
                    self.refused += caller.cost if isinstance(error, TimeoutError) else 0
                    self._end(caller, admitted=False)
                case Wait(seconds):
                    if seconds is not None:
                        self._agenda.after(seconds, lambda: self._do(lambda: self._walk(waiter)))
                    return
                case Fetch() as fetch:
                    self._send(fetch)
                case Retired():
                    raise AssertionError("a reservoir left that somebody needed")

    def _end(self, caller: Caller, *, admitted: bool) -> None:
        del self._callers[id(caller)]
        self._witness.ended(self, caller)
        caller.then(admitted)

    def _interrupt(self, place: int) -> None:
        if callers := self.waiting:
            self.was_disturbed = True
            caller = callers[place % len(callers)]
            self.reservoir.leave(caller, self.clock())
            del self._callers[id(caller)]

    def _refund(self, cost: int) -> None:
        owed, unrefunded = self.reservoir.requests.refunds, self.reservoir.state.fallback.unrefunded
        back = self.reservoir.lifecycle.refund(Waiter(cost, NO_WAIT, NOBODY), self.clock())
        travelling = back.refund if back else self.reservoir.requests.refunds
        absorbed = unrefunded - self.reservoir.state.fallback.unrefunded
        self._witness.refunded(owed + cost - travelling - absorbed)
        if back is not None:
            self._give_back(back)

    def _close(self) -> None:
        self.reservoir.lifecycle.close(ConnectionError("closed"), Waiter(0, NO_WAIT, NOBODY))
        while awake := self.reservoir.to_wake():
            for waiter in awake:
                self._walk(waiter)
        if (back := self.reservoir.lifecycle.drain()) is not None:
            self._give_back(back)
        self.gone = True

    def _thaw(self, cost: int, before: float, *, is_free: bool) -> None:
        happenings, self._frozen = self._frozen or [], None
        if self.clock() < before:
            self._spend(cost, is_free=is_free)
        elif before != -math.inf:
            self.reservoir.tokens.took_late(cost)
        for happening in [*happenings, lambda: None]:
            self._do(happening)

    def _send(self, fetch: Fetch) -> None:
        def take() -> Grant:
            grant = self._server.take(fetch.quota, fetch.ask)
            self._witness.asked(self, fetch.ask, grant)
            return grant

        def receive(grant: Grant) -> None:
            self._do(lambda: self.reservoir.granted(fetch, grant, self.clock(), self._chance.uniform(0.75, 1.25)))

        def give_up() -> None:
            self._do(lambda: self.reservoir.failed(fetch, TimeoutError(), self.clock()))

        self._post.send(self.name, take, receive, give_up)

    def _read_rules(self) -> None:
        sent = self.clock()

        def read() -> Published:
            return self._server.store.rules.read(self.known.revision)

        def learn(published: Published) -> None:
            try:
                self.known.learn(published, sent)
            except NotUnderstood as error:
                self.known.fail(error)
            self.reservoir.rule.reconsider(self.clock())
            self._expire_later()

        def give_up() -> None:
            self.known.fail(TimeoutError())

        self._post.send(self.name, read, lambda published: self._do(lambda: learn(published)), give_up)

    def _expire_later(self) -> None:
        if (seconds := self.known.next_end - self.clock()) < math.inf:
            self._agenda.after(max(seconds, _MOMENT), lambda: self._do(self._expire))

    def _expire(self) -> None:
        if self.known.expire():
            self.reservoir.rule.reconsider(self.clock())
        self._expire_later()

    def _give_back(self, back: GiveBack) -> None:
        quota = self.reservoir.state.quota

        def over(credited: int = 0) -> None:
            self._do(lambda: self.reservoir.gave_back(self.clock()))

        def credit() -> int:
            credited = self._server.give_back(quota, back)
            if back.seq not in self._returned:
                self._returned.add(back.seq)
                self._witness.refunded(back.refund)  # a bandwidth takes what it has room for
            return credited

        self._post.send(self.name, credit, over, over)

    def _look_later(self) -> None:
        """Plan the next visit of the refresher; an earlier one than planned replaces it."""
        due = max(self.reservoir.lifecycle.due(), self.clock())
        if due < self._looks_at:
            self._looks_at = due
            self._agenda.after(due - self.clock(), lambda: self._do(lambda: self._tend(due)))

    def _tend(self, due: float) -> None:
        if due != self._looks_at:
            return
        self._looks_at = math.inf
        match self.reservoir.lifecycle.tend(self.clock()):
            case Fetch() as fetch:
                self._send(fetch)
            case GiveBack() as back:
                self._give_back(back)
            case None:
                pass
        if self.reservoir.state.is_retired:
            self._retire()

    def _retire(self) -> None:
        admitted, refused, calls, *_ = figures_of(self.reservoir)
        self._past = self._past[0] + admitted, self._past[1] + refused, self._past[2] + calls
        self.reservoir, self._paid = self._new(self.reservoir.lifecycle.snapshot), 0
