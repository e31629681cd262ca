"""Several keys at once, in either API: all of them are charged, or none.

Keys whose tokens are here cost a hit each, and keys that are not in use share one spend. Else a caller takes a place in
the queue of each key. Threads and tasks take the same steps; other threads come between any two of them.
"""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from operator import length_hint
from typing import Any, Generic, TypeVar

from batchlimit.base.decision import Decision, Remains
from batchlimit.base.key import Costs, check_cost, check_costs, stored
from batchlimit.base.steps import Steps
from batchlimit.base.waiting import LONG_AGO, NO_WAIT
from batchlimit.errors import RateLimited, StoreUnavailable
from batchlimit.reservoir.admission import AdmissionResult
from batchlimit.reservoir.forecast import Prospect, longest_denial, longest_refusal
from batchlimit.reservoir.tokens import ONE
from batchlimit.reservoir.waiter import Refuse, half_of

C = TypeVar("C", bound=Any)
"""A tentative place in the queue of one key: a WaitingThread or a WaitingTask."""
Found = list[tuple[str, Any, int]]
"""Keys, their entries, and what is to be spent at each."""


def acquire_all(registry: Any, costs: Costs, until: float, priority: int) -> Steps[None]:
    """Wait until all are charged; RateLimited as soon as that cannot be in time."""
    came: dict[str, int] = {}
    told = yield from registry.memory.spend(registry, costs, came)
    if told is None or not all(told.values()):
        yield from registry.several(costs, registry, priority, came).acquire(until)


def decide_all(registry: Any, costs: Costs) -> Steps[dict[str, Decision]]:
    """Charge all keys now; return the Decision on each, or that on the key that is short if none is charged."""
    told: dict[str, Decision] | None = yield from registry.memory.spend(registry, costs, {})
    return told or (yield from registry.several(costs, registry, 1, {}).decide())


class FromMemory:
    """Decides by the entries of one limiter."""

    __slots__ = ("_clock", "_entries")

    def __init__(self, entries: Mapping[str, Any], clock: Callable[[], float]) -> None:
        self._entries, self._clock = entries, clock

    def take_leased(self, costs: Mapping[str, int]) -> dict[str, Remains] | None:
        """Charge all keys by leased tokens that are here; return what remains of each. None: not charged."""
        entries, now = self._entries, self._clock()
        found: Found = []  # a call of list[...] takes 200 ns more
        for key, cost in costs.items():  # as `_charge`, without its calls: each web request comes here
            if (entry := entries.get(key)) is None or (cost is not ONE and (cost.__class__ is not int or cost < 1)):
                return None
            if not entry.tokens.has(cost, now):
                return None
            found.append((key, entry, cost))
        left: dict[str, Remains] = {}
        ends: list[float] = []
        until = math.inf
        for key, entry, cost in found:
            tokens, state = entry.tokens, entry.reservoir.state
            if state.lease.borrowed:
                break
            end = next(tokens.lock_free, LONG_AGO) if cost is ONE else LONG_AGO
            if end == LONG_AGO and (end := entry.take(cost)) == LONG_AGO:
                break
            ends.append(end)
            if end < until:
                until = end
            view = state.view
            level, here = view.level, tokens.free + length_hint(tokens.lock_free)  # as Forecast.remaining adds them up
            left[key] = level + here if level > 0 else here, state.quota, view.binding
        else:
            if self._clock() < until:
                return left
        self._put_back(found, ends)
        return None

    def decide(self, costs: Any) -> dict[str, Decision] | None:
        """Charge all keys by tokens that are here, or refuse the call by memory; None: other rules have to decide."""
        if costs.__class__ is not dict or self._entries.keys().isdisjoint(costs):
            return None
        charged = self._charge(costs, now := self._clock())
        return self._denied(costs, now) if charged is None else _told(charged[0], now)

    def spend(self, registry: Any, costs: Any, came: dict[str, int]) -> Steps[dict[str, Decision] | None]:
        """Charge keys in use by tokens that are here, and all others by one spend; None: other rules have to decide.

        `came` gets the numbers of spends in vain, by key.
        """
        registry.settle_in()  # first: the keys in use may be those of another loop, or of the process before a fork
        entries = self._entries
        if costs.__class__ is not dict or not (cold := {key: costs[key] for key in costs if key not in entries}):
            return None
        if len(cold) == len(costs):  # as where each request is another user
            return (yield from registry.spend_together(cold, came))  # type: ignore[no-any-return]
        hot = {key: costs[key] for key in costs if key not in cold}
        if (charged := self._charge(hot, self._clock())) is None:
            return None
        told = admitted = None  # where all are charged
        try:
            told = yield from registry.spend_together(cold, came)
            admitted = told if told and all(told.values()) else None
        finally:
            if admitted is None:
                self._put_back(*charged)
        if admitted is None:
            return told  # type: ignore[no-any-return]
        if (now := self._clock()) >= min(charged[1]):  # the answer came after the end of a lease
            self._put_back(*charged)
            registry.refund_all(cold)
            return None
        admitted |= _told(charged[0], now)
        return {key: admitted[key] for key in costs}

    def _charge(self, costs: Mapping[str, int], now: float) -> tuple[Found, list[float]] | None:
        """Take the tokens of all, and return until when they count; None: too few are here, and none is taken."""
        found: Found = []
        for key, cost in costs.items():
            if (entry := self._entries.get(key)) is None or cost.__class__ is not int or cost < 1:
                return None
            if not entry.tokens.has(cost, now):
                return None
            found.append((key, entry, cost))
        ends: list[float] = []
        for _, entry, cost in found:
            if (end := _take(entry, cost)) == LONG_AGO:  # somebody was faster
                break
            ends.append(end)
        if len(ends) == len(found) and self._clock() < min(ends):
            return found, ends
        self._put_back(found, ends)
        return None

    def _put_back(self, found: Found, ends: list[float]) -> None:
        """Put back what was taken of the first ones, by which nobody was admitted."""
        for (_, entry, cost), end in zip(found, ends, strict=False):
            entry.took_late(cost)
            if self._clock() < end:  # else the process was stopped until the lease had ended
                with contextlib.suppress(StoreUnavailable):  # they are lost with a lease that is nearly over
                    entry.refund(cost)

    def _denied(self, costs: Mapping[str, int], now: float) -> dict[str, Decision] | None:
        """Return the refusal of the key that memory refuses for longest, if there is one."""
        if any(cost.__class__ is not int or cost < 1 for cost in costs.values()):
            return None
        if (denial := longest_denial(self._entries, costs, now)) is None:
            return None
        key, entry, _ = denial
        reservoir = entry.reservoir

        def deny() -> float:
            wait: float = reservoir.forecast.denied_for(costs[key], now)
            return wait if reservoir.admission.deny(costs[key], now) else 0.0

        wait = entry.locked(deny)
        return {key: reservoir.forecast.told(wait, "denied", now)} if wait else None


def _take(entry: Any, cost: int) -> float:
    """Spend tokens and return the instant before which they count, or LONG_AGO: somebody else was faster."""
    if cost is ONE:
        for before in entry.tokens.lock_free:
            return before  # type: ignore[no-any-return]
    return entry.take(cost)  # type: ignore[no-any-return]


def _told(found: Found, now: float) -> dict[str, Decision]:
    return {key: entry.reservoir.forecast.told(0.0, "local", now) for key, entry, _ in found}


class SeveralKeys(Generic[C]):
    """Charges several keys for one caller: it holds tokens of some keys until it holds those of all.

    A caller that is refused at one key returns the tokens of the others, and waits at that key alone. Once served there
    it waits for the others too, for half of its tokens' lease. If it cannot get all of them by then, it returns its
    tokens and tries again. It keeps its place in each queue, so it succeeds where all keys have a queue.

    `acquire` and `decide` are steps that threads and tasks take alike. A class of each API says how.
    """

    _begin: Callable[[Sequence[str], float], None]
    """Asks at the same time for the keys of which nothing is known, as far as that can be; who waits, until then."""
    _hold: Callable[[str, float], Any]
    """Waits in the queue of a key until then; returns the result, which a task awaits."""
    _leave: Callable[[], None]
    """Leaves all queues, once, also where this is interrupted and done again."""
    _finish: Callable[[Callable[[], None]], object]
    """Has this done, though its thread may be interrupted once more."""

    def __init__(
        self, costs: Costs, registry: Any, find: Callable[[str], Any], priority: int, came: Mapping[str, int]
    ) -> None:
        """`came` are the numbers of spends in vain, by key: nobody who came later is ahead."""
        self._costs, self._priority, self._came = check_costs(costs), priority, came
        self._find, self._clock, self._attempt = find, registry.clock, registry.attempt
        registry.check_open()
        for key, cost in self._costs.items():
            check_cost(cost, registry.entry(key).reservoir.state.most, key)
        self._held: list[C] = []
        self._begun: dict[str, C] = {}  # those of them that asked at the same time
        self._charged: list[C] = []
        # Its number in each queue. Not by key: a key entry may retire, and the queue of the next one counts anew.
        self._places: dict[Any, int] = {}

    def acquire(self, until: float) -> Steps[None]:
        """Wait until all are charged; RateLimited, by the key that takes longest, as soon as that cannot be in time."""
        short: str | None = None
        try:
            while True:
                with self._attempt:
                    short = yield from self._try(short, until)
                if short is None:
                    return
        except RateLimited as refusal:
            found = {key: self._find(key) for key in self._costs}
            raise longest_refusal(refusal, found, self._costs, self._clock()) from None

    def decide(self) -> Steps[dict[str, Decision]]:
        """Charge all keys now; return the Decision on each, or that on the key that is short if none is charged."""
        try:
            yield from self.acquire(NO_WAIT)
        except RateLimited as refusal:
            return {refusal.key: refusal.decision}
        results, now = {caller.entry.key: caller.told() for caller in self._charged}, self._clock()
        return {key: results[stored(key)].decision(now) for key in self._costs}

    def _try(self, behind: str | None, until: float) -> Steps[str | None]:
        """Take all keys, waiting first at the one that was short before; return the one that is short now."""
        try:
            short = yield from self._take(behind, until)
            self._leave()
            return short
        except (RateLimited, StoreUnavailable):
            self._leave()
            raise
        except BaseException:
            self._finish(self._leave)
            self._leave()
            raise

    def _take(self, behind: str | None, until: float) -> Steps[str | None]:
        patience = NO_WAIT
        if behind is not None:
            settled: AdmissionResult = yield self._hold(behind, until)
            if isinstance(settled.verdict, Refuse):
                raise settled.refusal(behind, self._clock())
            patience = half_of(settled.verdict, until, self._clock())
        prospects = self._prospects(behind)
        unknown = [key for key, prospect in prospects.items() if prospect == Prospect.UNKNOWN]
        for key in prospects:
            if unknown and key == unknown[0]:
                self._begin(unknown, patience)
            settled = yield self._hold(key, patience)
            if isinstance(settled.verdict, Refuse):
                if self._clock() + settled.verdict.retry_after <= until:
                    return key
                with contextlib.suppress(StoreUnavailable):  # whether or not that key can be served: this one refuses
                    for other in list(self._begun):  # one may take longer
                        yield self._hold(other, patience)
                raise settled.refusal(key, self._clock())
        return self._confirm()

    def _prospects(self, behind: str | None) -> dict[str, Prospect]:
        """First the keys that memory refuses, then those that it admits; those for which the store is asked come last.

        Keys of one kind are sorted by name: callers that want the same keys meet at the first of them.
        """
        now, costs = self._clock(), self._costs
        found = {key: self._find(key).reservoir.forecast.prospect(costs[key], now) for key in costs if key != behind}
        return dict(sorted(found.items(), key=lambda each: (each[1], each[0])))

    def _number(self, entry: Any, key: str) -> int:
        """Return the number of this caller in the queue of a key; 0: it joins last."""
        return self._places.get(entry) or self._came.get(key, 0)

    def _confirm(self) -> str | None:
        """Spend all that is held; or return the key whose tokens have expired by now."""
        now = self._clock()
        for caller in self._held:
            if not caller.waiter.is_good(now):
                return next(key for key in self._costs if stored(key) == caller.entry.key)
        for caller in self._held:
            caller.confirm()
        self._charged, self._held = self._held, []
        return None
