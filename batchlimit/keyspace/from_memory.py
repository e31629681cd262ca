"""Several keys at once, decided from memory: what four keys cost is four hits, and not four places in a queue.

Threads and tasks take the same steps. Other threads come between any two of them: where one of them takes the tokens of
the last key, those of the others go back.
"""

import contextlib
import math
from collections.abc import Callable, Mapping
from operator import length_hint
from typing import Any, NamedTuple

from batchlimit.base.decision import Decision, Remains
from batchlimit.base.waiting import LONG_AGO
from batchlimit.errors import StoreUnavailable
from batchlimit.reservoir.forecast import longest_denial
from batchlimit.reservoir.tokens import ONE

Found = list[tuple[str, Any, int]]
"""Keys, their entries, and what is to be spent at each."""


class HotCharge(NamedTuple):
    """One call's keys in use, whose tokens were taken, until when those count, and its keys that are not in use."""

    costs: Mapping[str, int]
    found: Found
    ends: list[float]
    cold: dict[str, int]


class FromMemory:
    """Decides by the entries of one limiter. `refund` takes back what was spent at one of them."""

    __slots__ = ("_clock", "_entries", "_refund")

    def __init__(
        self, entries: Mapping[str, Any], clock: Callable[[], float], refund: Callable[[Any, int], object]
    ) -> None:
        self._entries, self._clock, self._refund = entries, clock, refund

    def take_leased(self, costs: Mapping[str, int]) -> dict[str, Remains] | None:
        """Charge all keys by leased tokens that are here; return what remains of each. None: not charged."""
        entries, now = self._entries, self._clock()
        found: Found = []  # a call of list[...] takes 200 ns more
        for key, cost in costs.items():  # as `_find` and `_take`, without their calls: each web request comes here
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
        found, is_enough = self._find(costs, now := self._clock())
        if not is_enough:
            return self._denied(costs, now)
        return None if self._charge(found) is None else _told(found, now)

    def charge_hot(self, costs: Any) -> HotCharge | None:
        """Charge the keys in use by tokens that are here; None: too few, or all are in use. `settle` follows."""
        if costs.__class__ is not dict or not (cold := {key: costs[key] for key in costs if key not in self._entries}):
            return None
        if len(cold) == len(costs):  # as where each request is another user
            return HotCharge(costs, [], [], cold)
        found, is_enough = self._find({key: costs[key] for key in costs if key not in cold}, self._clock())
        ends = self._charge(found) if is_enough else None
        return None if ends is None else HotCharge(costs, found, ends, cold)

    def settle(
        self, charged: HotCharge, told: dict[str, Decision] | None, undo: Callable[[Mapping[str, int]], None]
    ) -> dict[str, Decision] | None:
        """Return what to tell, by what became of the cold keys; where nobody is admitted, put back all that was taken.

        None: other rules have to decide. `undo` refunds the cold keys.
        """
        if not charged.found:
            return told
        if not told or not all(told.values()):
            self._put_back(charged.found, charged.ends)
            return told
        now = self._clock()
        if now >= min(charged.ends):  # the answer came after the end of a lease
            self._put_back(charged.found, charged.ends)
            undo(charged.cold)
            return None
        told |= _told(charged.found, now)
        return {key: told[key] for key in charged.costs}

    def _find(self, costs: Mapping[str, int], now: float) -> tuple[Found, bool]:
        """Return whose tokens to take, and whether all have enough; if not, the last one is short. None: no entry."""
        found: Found = []
        for key, cost in costs.items():
            if (entry := self._entries.get(key)) is None or cost.__class__ is not int or cost < 1:
                return [], False
            found.append((key, entry, cost))
            if not entry.tokens.has(cost, now):
                return found, False
        return found, True

    def _charge(self, found: Found) -> list[float] | None:
        """Take the tokens of all, and return until when they count; None: somebody was faster, and none is taken."""
        ends: list[float] = []
        for _, entry, cost in found:
            if (end := _take(entry, cost)) == LONG_AGO:
                break
            ends.append(end)
        if len(ends) == len(found) and self._clock() < min(ends, default=math.inf):
            return ends
        self._put_back(found, ends)
        return None

    def _put_back(self, found: Found, ends: list[float]) -> None:
        """Put back what was taken of the first ones, by which nobody was admitted."""
        for (_, entry, cost), end in zip(found, ends, strict=False):
            entry.took_late(cost)
            if self._clock() < end:  # else the process was stopped until the lease had ended
                with contextlib.suppress(StoreUnavailable):  # they are lost with a lease that is nearly over
                    self._refund(entry, cost)

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
