"""Several keys at once, decided from memory: what four keys cost is four hits, and not four places in a queue."""

import math
from collections.abc import Callable, Mapping

from batchlimit.aio import store_calls
from batchlimit.aio.key_entry import KeyEntry
from batchlimit.decision import Decision, Source
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.statistics import decision


def decide_from_memory(
    entries: Mapping[str, KeyEntry], costs: object, clock: Callable[[], float]
) -> dict[str, Decision] | None:
    """Charge all keys by tokens that are here, or refuse the call by memory; None: other rules have to decide.

    Nobody comes between: the caller is on the loop of these entries, and nothing here awaits.
    """
    if costs.__class__ is not dict:
        return None
    found: list[tuple[str, KeyEntry, int]] = []
    now = clock()
    for key, cost in costs.items():
        if (entry := entries.get(key)) is None or cost.__class__ is not int or cost < 1:
            return None
        if not entry.tokens.has(cost, now):
            return _denied(key, entry.reservoir, cost, now)
        found.append((key, entry, cost))
    if not _charge(found, clock):
        return None
    decisions = {}
    for key, entry, _ in found:
        reservoir = entry.reservoir
        source: Source = "fallback" if entry.reservoir.state.lease.borrowed else "local"
        decisions[key] = decision(reservoir.quota, reservoir.forecast.remaining(now), 0.0, source)
    return decisions


def _charge(found: list[tuple[str, KeyEntry, int]], clock: Callable[[], float]) -> bool:
    ends = [entry.tokens.take_here(cost) for _, entry, cost in found]
    now = clock()
    if now < min(ends, default=math.inf):
        return True
    for (_, entry, cost), end in zip(found, ends, strict=True):  # the process was stopped until a lease had ended
        if now < end:
            store_calls.refund(entry, cost)
        else:
            entry.tokens.took_late(cost)
    return False


def _denied(key: str, reservoir: Reservoir, cost: int, now: float) -> dict[str, Decision] | None:
    if reservoir.forecast.is_failing(now):
        return None
    if not (wait := reservoir.forecast.denied_for(cost, now)) or not reservoir.admission.deny(cost, now):
        return None
    source: Source = "fallback" if reservoir.state.lease.borrowed else "denied"
    return {key: decision(reservoir.quota, reservoir.forecast.remaining(now), wait, source)}
