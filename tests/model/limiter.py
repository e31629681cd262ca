"""One limiter instance: the real keyspace and reservoirs, and what an API does around them; here that takes no time."""

import math
from collections.abc import Callable
from copy import deepcopy
from itertools import repeat
from operator import length_hint
from typing import TYPE_CHECKING, NamedTuple

from batchlimit.base.waiting import NO_WAIT
from batchlimit.bucket.messages import GiveBack, Grant
from batchlimit.errors import StoreUnavailable
from batchlimit.keyspace.census import BaseKeyEntry
from batchlimit.keyspace.keyspace import Keyspace
from batchlimit.keyspace.spending import KeySpend, Outcome, is_charged
from batchlimit.quota.lookup import NOTHING, quota_rule
from batchlimit.quota.overrides.code import Code, Rank
from batchlimit.quota.overrides.known import OverridesCache, Published
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.options import Options
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.statistics import Health
from batchlimit.reservoir.tokens import NO_TOKENS, FreeTokens
from batchlimit.reservoir.waiter import NOBODY, Admit, Fail, Fetch, Refuse, Retired, Wait, Waiter
from tests.reservoir.world import NoRules

if TYPE_CHECKING:
    from tests.model.world import World

KEY = "key"
NAMES = "ABC"
SECOND = 1_000_000


class Order(NamedTuple):
    """A request to pause the key for so long; 0: to resume it."""

    seconds: float


class Look(NamedTuple):
    """A look at the overrides, by who knows this revision."""

    revision: int
    sent: float


Body = Fetch | GiveBack | list[KeySpend] | Order | Look


class Bell:
    """Nobody sleeps here: the instance walks with each waiter that is to be woken."""

    def set(self) -> None:
        pass


_BELL = Bell()


class Caller(Waiter):
    """A waiter that knows when it looks again. `begun` is what it spends just now."""

    __slots__ = ("begun", "came", "wakes_at")

    def __init__(self, cost: int, deadline: float, came: int, priority: int = 1) -> None:
        super().__init__(cost, deadline, _BELL, priority=priority)
        self.came = came
        self.begun: list[KeySpend] | None = None
        self.wakes_at = math.inf


class Numbers:
    """The numbers of an instance's messages; `sent` is the last one."""

    __slots__ = ("sent",)

    def __init__(self) -> None:
        self.sent = 0

    def __iter__(self) -> "Numbers":
        return self

    def __next__(self) -> int:
        self.sent += 1
        return self.sent


class Entry(BaseKeyEntry):
    """The one key in use."""

    __slots__ = ("paid",)

    def __init__(self, key: str, reservoir: Reservoir) -> None:
        self.key, self.reservoir, self.tokens = key, reservoir, reservoir.tokens
        self.seen = self.paid = 0

    def evict(self) -> bool:
        return self.reservoir.lifecycle.evict()


class Limiter:
    """Calls go the way of `batchlimit.sync`: from memory, or by a spend, or in line; a timer comes when it is due."""

    __slots__ = (
        "_births", "_options", "_world", "callers", "clock", "entries", "handle", "is_gone", "keyspace", "numbers",
        "place", "quota", "rules", "since", "stopped_with",
    )  # fmt: skip

    def __init__(self, place: int, quota: Quota, options: Options, world: "World", ahead: float) -> None:
        """`ahead`: by how much its clock shows more than that of the first instance (s)."""
        self.place, self.quota, self._world = place, quota, world
        self.clock: Callable[[], float] = lambda: ahead + world.now / SECOND
        self.callers: list[Caller]
        self.is_gone: bool
        self.stopped_with: tuple[int, float] | None
        """While the process is stopped: tokens that a thread had just taken, and until when they count."""
        self.handle: FreeTokens | None
        """The tokens that a key handle knows in a forked child: those of its parent."""
        self._options, self._births = options, 0
        self.begin()

    def begin(self) -> None:
        """Be an instance of which the store has never heard: at first, and where a process has died."""
        self.entries: dict[str, Entry] = {}
        self.handle, self.since = None, self.clock()
        self.rules = OverridesCache(self.clock, self._look_at_rules) if self._world.rules else NoRules()
        self._begin()

    def fork(self, parent: "Limiter") -> None:
        """Be a child of that one, see `Registry.after_fork`: it has a copy of all that is in memory."""
        known = [each.tokens for each in parent.entries.values()]
        copies = {id(each.lock_free): repeat(each.expires, length_hint(each.lock_free)) for each in known}
        memory: dict[int, object] = {id(parent): self, **copies}
        memory |= {id(each): each for each in (self._world, NO_TOKENS, NOTHING)}
        self.entries, self.rules, self.quota, self.since, keyspace = deepcopy(
            (parent.entries, parent.rules, parent.quota, parent.since, parent.keyspace), memory
        )
        self.handle = next((each.tokens for each in self.entries.values()), None)
        keyspace.disown()
        self.rules.after_fork()
        self._births = 0
        self._begin()

    def _begin(self) -> None:
        """See `Registry._begin`."""
        self.callers, self.is_gone, self.stopped_with = [], False, None
        self._births += 1
        self.keyspace: Keyspace[Entry] = Keyspace(
            self.entries, self._options, instance=self.name, clock=self.clock, make=Entry,
            left=lambda entry: None, rules=self.rules, code=self._code(),
        )  # fmt: skip
        self.numbers = Numbers()
        object.__setattr__(self.keyspace._instance, "numbers", self.numbers)  # whose count can be taken back

    def _code(self) -> Code:
        return Code(quota_rule(self.quota), "closed", "enforce", Rank(0, self.since))

    def _look_at_rules(self) -> None:
        assert isinstance(self.rules, OverridesCache)
        self._world.send(self.place, Look(self.rules.revision, self.clock()))

    @property
    def name(self) -> str:
        """By which the store knows it."""
        return NAMES[self.place] + "'" * (self._births - 1)

    @property
    def is_stopped(self) -> bool:
        return self.stopped_with is not None

    @property
    def runs(self) -> bool:
        return not self.is_gone and self.stopped_with is None

    @property
    def reservoir(self) -> Reservoir | None:
        """That of the key, while it is in use."""
        entry = self.entries.get(KEY)
        return None if entry is None else entry.reservoir

    @property
    def counts(self) -> tuple[int, int, int]:
        """(admitted, refused, waiting) by its own statistics."""
        census = self.keyspace.census()
        census.take(lambda: None)
        told = Keyspace.statistics(census, Health())
        return told.admitted, told.refused, told.waiting

    # What callers do

    def call(self, cost: int, patience: float, priority: int = 1) -> None:
        """`try_acquire` where there is no patience, else `acquire`."""
        caller = Caller(cost, self.clock() + patience if patience else NO_WAIT, self._world.now, priority)
        self._world.came(self.place, caller)
        self.callers.append(caller)
        if not self._has_by_handle(caller):
            self._admit(caller)
        self._look()

    def cancel(self, place: int) -> None:
        """A caller in line is interrupted."""
        caller = self.callers.pop(place)
        if caller.begun is not None:
            self.keyspace.spending.end(caller.begun)
        elif (reservoir := self.reservoir) is not None:
            reservoir.leave(caller, self.clock())
        self._look()

    def refund(self, cost: int) -> int:
        """A caller takes back what it was admitted for; return how much of it is there at once."""
        reservoir = self._entry().reservoir
        owed = reservoir.requests.refunds
        back = reservoir.lifecycle.refund(Waiter(cost, NO_WAIT, NOBODY), self.clock())
        travelling = back.refund if back else reservoir.requests.refunds
        if back is not None:
            self._world.send(self.place, back)
        self._look()
        return owed + cost - travelling

    def debit(self, cost: int) -> None:
        """A caller used more than it had estimated."""
        self._entry().reservoir.lifecycle.debit(cost, self.clock())
        self._look()

    def order(self, seconds: float) -> None:
        """A caller pauses the key, or resumes it (0 seconds), see `BaseRegistry.pause`."""
        self._entry()
        self._world.send(self.place, Order(seconds))
        self._look()

    def _ordered(self, order: Order, answer: object) -> None:
        lifecycle = self._entry().reservoir.lifecycle
        if order.seconds:
            left = order.seconds if answer is None else answer
            self._world.holds(self.place, left)  # type: ignore[arg-type]
            if (back := lifecycle.pause(left, self.clock(), Waiter(0, NO_WAIT, NOBODY))) is not None:  # type: ignore[arg-type]
                self._world.send(self.place, back)
        elif answer is not None:
            self._world.holds(self.place, 0.0)
            lifecycle.resume()

    # What a process does

    def stop(self) -> None:
        """Stop the process just after a thread took a token, if there was one."""
        reservoir = self.reservoir
        self.stopped_with = 1, NO_WAIT if reservoir is None else reservoir.tokens.take(1)

    def wake(self) -> bool:
        """Go on; return whether the token that was taken is spent."""
        assert self.stopped_with is not None
        (cost, before), self.stopped_with = self.stopped_with, None
        is_spent = self.clock() < before
        if not is_spent and before != NO_WAIT and (reservoir := self.reservoir) is not None:
            reservoir.tokens.took_late(cost)
        self.tick()
        return is_spent

    def close(self) -> None:
        """End in good order."""
        for entry in self.keyspace.clear():
            lifecycle = entry.reservoir.lifecycle
            lifecycle.close(ConnectionError("closed"), Waiter(0, NO_WAIT, NOBODY))
            if (back := lifecycle.drain()) is not None:
                self._world.send(self.place, back)
        self.is_gone, self.callers = True, []

    # What holds for the key

    def reload(self, quota: Quota) -> None:
        """A file says another quota, see `Registry.obey`."""
        self.quota, self.since = quota, self.clock()
        self.keyspace.obey(self._code())
        for entry in self.entries.values():
            self.keyspace.recode(entry)
        self._look()

    def _learn(self, look: Look, answer: object) -> None:
        """See `RuleReader`."""
        assert isinstance(self.rules, OverridesCache)
        if isinstance(answer, Published):
            self.rules.learn(answer, look.sent)
        else:
            self.rules.fail(StoreUnavailable("no answer"))
        self._reconsider()

    def _reconsider(self) -> None:
        for entry in self.entries.values():
            entry.reservoir.rule.reconsider(self.clock())

    # What becomes of messages

    def hear(self, body: Body, answer: object) -> None:
        """An answer is here; None: there will be none."""
        if isinstance(body, list):
            self._settle(body, answer)
        elif isinstance(body, Order):
            self._ordered(body, answer)
        elif isinstance(body, Look):
            self._learn(body, answer)
        elif (reservoir := self.reservoir) is not None:
            if isinstance(body, GiveBack):
                reservoir.gave_back(self.clock())
            elif isinstance(answer, Grant):
                reservoir.granted(body, answer, self.clock(), 1.0)
            else:
                reservoir.failed(body, StoreUnavailable("no answer"), self.clock())
        self._look()

    # Time

    def due(self) -> float:
        """The next instant, by its clock, at which it does something by itself."""
        reservoir = self.reservoir
        return min(
            [self.keyspace.dormant.due, self.rules.next_end, *(each.wakes_at for each in self.callers)]
            + ([] if reservoir is None else [reservoir.lifecycle.due()])
        )

    def tick(self) -> None:
        """Do what is due."""
        now = self.clock()
        if self.rules.expire():
            self._reconsider()
        for caller in [each for each in self.callers if each.wakes_at <= now]:
            self._walk(caller)
        self._look()
        reservoir = self.reservoir
        if reservoir is not None and reservoir.lifecycle.due() <= now:
            if (request := reservoir.lifecycle.tend(now)) is not None:
                self._world.send(self.place, request)
            if reservoir.state.is_retired:
                self.keyspace.let_go(self.entries[KEY])
        if self.keyspace.dormant.due <= now:
            self.keyspace.dormant.forget_idle(self.keyspace._clock())
        self._look()

    # The ways of a call

    def _has_by_handle(self, caller: Caller) -> bool:
        """See `KeyHandle.try_acquire`: it spends what it knows, or looks for the entry of now."""
        tokens, self.handle = self.handle, None
        if tokens is None or caller.cost != 1 or caller.deadline != NO_WAIT:
            return False
        if is_admitted := self.clock() < next(tokens.lock_free, NO_WAIT):
            self._end(caller)
            self._world.admitted(self.place, caller, memory=True)
        return is_admitted

    def _entry(self) -> Entry:
        return self.keyspace.find(KEY, self.quota)

    def _admit(self, caller: Caller) -> None:
        """See `RateLimiter._admit`."""
        begun = self.keyspace.spending.begin({KEY: caller.cost})
        if begun is not None:
            caller.begun = begun
            self._world.send(self.place, begun)
        else:
            self._admit_at_entry(caller)

    def _admit_at_entry(self, caller: Caller) -> None:
        """See `RateLimiter.try_acquire` and `_try_at`."""
        entry, now = self._entry(), self.clock()
        tokens, reservoir = entry.tokens, entry.reservoir
        is_hasty = caller.deadline == NO_WAIT
        before = next(tokens.lock_free, NO_WAIT) if caller.cost == 1 and is_hasty else NO_WAIT
        if before == NO_WAIT and is_hasty and self._is_denied(reservoir, caller, now):
            self._end(caller)
            self._world.refused(self.place, caller, reservoir.forecast.denied_for(caller.cost, now), memory=True)
            return
        before = before if before != NO_WAIT else tokens.take(caller.cost)
        before = before if before != NO_WAIT else reservoir.requests.take_low(caller.cost)
        if now < before:
            self._end(caller)
            self._world.admitted(self.place, caller, memory=True)
            return
        if before != NO_WAIT:
            tokens.took_late(caller.cost)
        reservoir.admission.join(caller)
        self._walk(caller)

    @staticmethod
    def _is_denied(reservoir: Reservoir, caller: Caller, now: float) -> bool:
        if caller.cost == 1 and now < reservoir.tokens.denied_until:
            reservoir.tokens.refused += 1
            return True
        return reservoir.state.is_short(now) and reservoir.admission.deny(caller.cost, now)

    def _settle(self, begun: list[KeySpend], answer: object) -> None:
        """See `Spends._spend`, and `_in_vain`."""
        caller = next((each for each in self.callers if each.begun is begun), None)
        if caller is None:
            return  # it was interrupted
        outcome: Outcome = StoreUnavailable("no answer") if answer is None else answer[0]  # type: ignore[index]
        if answer is not None and answer[1] >= 0:  # type: ignore[index]
            self.keyspace.spending.hear(answer[1])  # type: ignore[index]
        kept = dict[str, bytes]()
        outcome = self.keyspace.spending.hear_of(begun, outcome, self.clock(), kept)
        self.keyspace.spending.keep(kept, self.clock())
        caller.begun = None
        if is_charged(outcome):
            self._end(caller)
            self._world.admitted(self.place, caller, memory=False)
        elif outcome is None:
            self._admit_at_entry(caller)
        else:
            self._spent_in_vain(caller, begun[0], outcome)

    def _spent_in_vain(self, caller: Caller, spend: KeySpend, outcome: Outcome) -> None:
        entry, fetch = self._entry(), self.keyspace.spending.fetch(spend)
        if not entry.reservoir.adopt(caller, fetch):
            self._admit_at_entry(caller)
            return
        if isinstance(outcome, StoreUnavailable):
            entry.reservoir.failed(fetch, outcome, self.clock())
        else:
            entry.reservoir.granted(fetch, spend.refusal(), self.clock(), 1.0)
        self._walk(caller)

    def _walk(self, caller: Caller) -> None:
        """What a thread does that waits in line, until it sleeps or leaves; see `WaitingThread._verdict`."""
        while caller in self.callers and caller.begun is None:
            reservoir = self._entry().reservoir
            caller.wakes_at = math.inf
            match reservoir.step(caller, self.clock()):
                case Admit(before):
                    if self.clock() < before:
                        self._end(caller)
                        self._world.admitted(self.place, caller, memory=False)
                case Refuse(retry_after):
                    self._end(caller)
                    self._world.refused(self.place, caller, retry_after, memory=False)
                case Fail():
                    self._end(caller)
                    self._world.failed(self.place, caller)
                case Wait(seconds):
                    caller.wakes_at = math.inf if seconds is None else self.clock() + seconds
                    return
                case Fetch() as fetch:
                    self._world.send(self.place, fetch)
                case Retired():
                    caller.verdict = None
                    self._end(caller)
                    self.callers.append(caller)
                    self._admit(caller)

    def _end(self, caller: Caller) -> None:
        self.callers.remove(caller)

    def _look(self) -> None:
        """Walk with all that are to be woken."""
        while (reservoir := self.reservoir) is not None and (awake := reservoir.to_wake()):
            for waiter in awake:
                if isinstance(waiter, Caller):
                    self._walk(waiter)
        if (entry := self.entries.get(KEY)) is not None and (paid := entry.reservoir.state.overdraft.paid) > entry.paid:
            owed, entry.paid = paid - entry.paid, paid
            self._world.paid(self.place, owed)
