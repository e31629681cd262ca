"""Several keys at once, decided from memory: what four keys cost is four hits, and not four places in a queue."""

import contextlib
from collections.abc import Callable, Mapping
from operator import length_hint
from typing import Any

from batchlimit.base.decision import Decision, Remains
from batchlimit.base.waiting import NO_WAIT
from batchlimit.errors import StoreUnavailable
from batchlimit.reservoir.forecast import longest_denial
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.tokens import ONE
from batchlimit.sync import store_calls
from batchlimit.sync.key_entry import KeyEntry
from batchlimit.sync.spends import Spends

Entries = Mapping[str, KeyEntry]
Clock = Callable[[], float]
Found = list[tuple[str, KeyEntry, int]]


def take_leased(entries: Entries, costs: Mapping[str, int], clock: Clock) -> dict[str, Remains] | None:
    """Charge all keys by leased tokens that are here; return what remains of each. None: not charged."""
    now = clock()
    found, is_enough = _found(entries, costs, now)
    if not is_enough:
        return None
    left: dict[str, Remains] = {}
    ends: list[float] = []
    for key, entry, cost in found:  # one loop, for each request of a web application comes here
        tokens, state = entry.tokens, entry.reservoir.state
        if state.lease.borrowed:
            break
        end = next(tokens.lock_free, NO_WAIT) if cost is ONE else NO_WAIT
        if end == NO_WAIT and (end := entry.take(cost)) == NO_WAIT:
            break
        ends.append(end)
        view = state.view
        level, here = view.level, tokens.free + length_hint(tokens.lock_free)  # as Forecast.remaining adds them up
        left[key] = level + here if level > 0 else here, state.quota, view.binding
    else:
        if not ends or clock() < min(ends):
            return left
    _put_back(found, ends, clock)
    return None


def decide_from_memory(entries: Entries, costs: Any, clock: Clock) -> dict[str, Decision] | None:
    """Charge all keys by tokens that are here, or refuse the call by memory; None: other rules have to decide."""
    if costs.__class__ is not dict or entries.keys().isdisjoint(costs):
        return None
    now = clock()
    found, is_enough = _found(entries, costs, now)
    if not is_enough:
        return _denied(entries, costs, now)
    if _charge(found, clock) is None:
        return None
    return {key: entry.reservoir.forecast.told(0.0, "local", now) for key, entry, _ in found}


def spend_cold(spends: Spends, entries: Entries, costs: object, clock: Clock) -> dict[str, Decision] | None:
    """Charge keys in use by tokens that are here, and all others by one spend; None: other rules have to decide."""
    if costs.__class__ is not dict or not (cold := {key: cost for key, cost in costs.items() if key not in entries}):
        return None
    found, is_enough = _found(entries, {key: cost for key, cost in costs.items() if key not in cold}, clock())
    ends = _charge(found, clock) if is_enough else None
    if ends is None:
        return None
    told = None
    try:
        told = spends.all(cold)
    finally:
        if told is None or not all(told.values()):
            _put_back(found, ends, clock)
    if not told or not all(told.values()):
        return told
    now = clock()
    if ends and now >= min(ends):  # the answer came after the end of a lease
        _put_back(found, ends, clock)
        spends.refund(cold)
        return None
    told |= {key: entry.reservoir.forecast.told(0.0, "local", now) for key, entry, _ in found}
    return {key: told[key] for key in costs}


def _found(entries: Entries, costs: Mapping[str, int], now: float) -> tuple[Found, bool]:
    """Return whose tokens to take, and whether all have enough; if not, the last one is short. Nothing: ask the queue.

    Other threads come between. Where one of them takes the tokens of the last key, those of the others go back.
    """
    found: Found = []
    for key, cost in costs.items():
        if (entry := entries.get(key)) is None or cost.__class__ is not int or cost < 1:
            return [], False
        found.append((key, entry, cost))
        if not entry.tokens.has(cost, now):
            return found, False
    return found, True


def _charge(found: Found, clock: Clock) -> list[float] | None:
    """Take the tokens of all, and return until when they count; None: somebody else was faster, and none is taken."""
    ends: list[float] = []
    for _, entry, cost in found:
        if (end := _take(entry, cost)) == NO_WAIT:
            break
        ends.append(end)
    if len(ends) == len(found) and (not ends or clock() < min(ends)):
        return ends
    _put_back(found, ends, clock)
    return None


def _put_back(found: Found, ends: list[float], clock: Clock) -> None:
    for (_, entry, cost), end in zip(found, ends, strict=False):
        entry.took_late(cost)  # nobody was admitted by them
        if clock() < end:  # else the process was stopped until the lease had ended
            with contextlib.suppress(StoreUnavailable):  # they are lost with a lease that is nearly over
                store_calls.refund(entry, cost)


def _take(entry: KeyEntry, cost: int) -> float:
    """Spend tokens and return the instant before which they count, or NO_WAIT: somebody else was faster."""
    if cost is ONE:
        for before in entry.tokens.lock_free:
            return before
    return entry.take(cost)


def _denied(entries: Entries, costs: Mapping[str, int], now: float) -> dict[str, Decision] | None:
    """Return the refusal of the key that memory refuses for longest, if there is one."""
    if any(cost.__class__ is not int or cost < 1 for cost in costs.values()):
        return None
    if (denial := longest_denial(entries, costs, now)) is None:
        return None
    key, entry, _ = denial
    reservoir = entry.reservoir
    if not (wait := entry.locked(lambda: _deny(reservoir, costs[key], now))):
        return None
    return {key: reservoir.forecast.told(wait, "denied", now)}


def _deny(reservoir: Reservoir, cost: int, now: float) -> float:
    """Refuse by memory, if memory does so; return when (s) to come again."""
    wait = reservoir.forecast.denied_for(cost, now)
    return wait if reservoir.admission.deny(cost, now) else 0.0
