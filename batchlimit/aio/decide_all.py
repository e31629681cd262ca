"""Several keys at once, decided from memory: what four keys cost is four hits, and not four places in a queue."""

import math
from collections.abc import Callable, Mapping
from operator import length_hint
from threading import get_ident
from typing import Any

from batchlimit.aio import store_calls
from batchlimit.aio.key_entry import KeyEntry
from batchlimit.aio.registry import Registry
from batchlimit.base.decision import Decision, Remains
from batchlimit.base.waiting import LONG_AGO
from batchlimit.reservoir.forecast import longest_denial
from batchlimit.reservoir.tokens import ONE

Entries = Mapping[str, KeyEntry]
Clock = Callable[[], float]
Taken = tuple[KeyEntry, str, int, float]
"""Whose tokens, by which key, how many, and before when they count."""


def take_leased(registry: Registry, costs: Mapping[str, int]) -> dict[str, Remains] | None:
    """Charge all keys by leased tokens that are here; return what remains of each. None: not charged."""
    if registry.thread != get_ident():
        return None
    entries, until = registry.entries, math.inf
    left: dict[str, Remains] = {}
    for key, cost in costs.items():  # one loop, for each request of a web application comes here
        if (entry := entries.get(key)) is None or (cost is not ONE and (cost.__class__ is not int or cost < 1)):
            break
        tokens, state = entry.tokens, entry.reservoir.state
        before = next(tokens.lock_free, LONG_AGO) if cost is ONE else LONG_AGO
        if before == LONG_AGO and (before := tokens.take(cost)) == LONG_AGO:
            break
        view = state.view
        level, here = view.level, tokens.free + length_hint(tokens.lock_free)  # as Forecast.remaining adds them up
        left[key] = level + here if level > 0 else here, state.quota, view.binding
        if before < until:
            until = before
        if state.lease.borrowed:
            break
    else:
        if registry.clock() < until:
            return left
    if left:
        _put_back([(entries[key], key, costs[key], entries[key].tokens.expires) for key in left], registry.clock())
    return None


def decide_from_memory(registry: Registry, costs: Any) -> dict[str, Decision] | None:
    """Charge all keys by tokens that are here, or refuse the call by memory; None: other rules have to decide."""
    if costs.__class__ is not dict or registry.thread != get_ident() or registry.entries.keys().isdisjoint(costs):
        return None
    taken, now = _take(registry.entries, costs, registry.clock)
    if taken is None:
        return _denied(registry.entries, costs, now)
    return {key: entry.reservoir.forecast.told(0.0, "local", now) for entry, key, _, _ in taken}


async def spend_cold(registry: Registry, costs: Any) -> dict[str, Decision] | None:
    """Charge keys in use by tokens that are here, and all others by one spend; None: other rules have to decide."""
    if costs.__class__ is not dict:
        return None
    hot, cold = dict[str, int](), dict[str, int]()
    for key, cost in costs.items():
        (hot if key in registry.entries else cold)[key] = cost
    if not cold:
        return None
    registry.settle_in()
    spends = registry.spends
    if not hot:  # as where each request is another user
        return await spends.all(costs)
    taken, now = _take(registry.entries, hot, registry.clock)
    if taken is None:
        return None
    told = None
    try:
        told = await spends.all(cold)
    finally:
        if told is None or not all(told.values()):
            _give_back(taken, registry.clock())
    if not told or not all(told.values()):
        return told
    now = registry.clock()
    if any(now >= before for _, _, _, before in taken):  # the answer came after the end of a lease
        _give_back(taken, now)
        spends.refund(cold)
        return None
    told |= {key: entry.reservoir.forecast.told(0.0, "local", now) for entry, key, _, _ in taken}
    return {key: told[key] for key in costs}


def _give_back(taken: list[Taken], now: float) -> None:
    """Put back what was taken in an earlier turn of the loop."""
    for entry, _, cost, before in taken:
        entry.tokens.took_late(cost)  # nobody was admitted by them
        if now < before:
            store_calls.refund(entry, cost)


def _take(entries: Entries, costs: Mapping[str, int], clock: Clock) -> tuple[list[Taken] | None, float]:
    """Take the tokens of all keys, or of none. Return the time then, too.

    Nobody comes between: the caller is on the loop of these entries, and nothing here awaits.
    """
    taken: list[Taken] = []
    until = math.inf
    for key, cost in costs.items():
        if (entry := entries.get(key)) is None or cost.__class__ is not int or cost < 1:
            break
        tokens = entry.tokens
        before = next(tokens.lock_free, LONG_AGO) if cost is ONE else LONG_AGO
        if before == LONG_AGO and (before := tokens.take(cost)) == LONG_AGO:
            break
        taken.append((entry, key, cost, before))
        if before < until:
            until = before
    else:
        if (now := clock()) < until:
            return taken, now
    _put_back(taken, now := clock())
    return None, now


def _put_back(taken: list[Taken], now: float) -> None:
    for entry, _, cost, before in taken:
        if now < before:
            entry.tokens.put_back(cost)
        else:  # the process was stopped until the lease had ended
            entry.tokens.took_late(cost)


def _denied(entries: Entries, costs: Mapping[str, int], now: float) -> dict[str, Decision] | None:
    """Return the refusal of the key that memory refuses for longest, if there is one."""
    if any(cost.__class__ is not int or cost < 1 for cost in costs.values()):
        return None
    if (denial := longest_denial(entries, costs, now)) is None:
        return None
    key, entry, wait = denial
    reservoir = entry.reservoir
    return {key: reservoir.forecast.told(wait, "denied", now)} if reservoir.admission.deny(costs[key], now) else None
