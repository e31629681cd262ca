"""Several keys at once, decided from memory: what four keys cost is four hits, and not four places in a queue."""

from collections.abc import Callable, Mapping

from batchlimit.decision import Decision, Source
from batchlimit.reservoir.statistics import decision
from batchlimit.reservoir.tokens import ONE
from batchlimit.sync import store_calls
from batchlimit.sync.key_entry import KeyEntry
from batchlimit.waiting import NO_WAIT


def decide_from_memory(
    entries: Mapping[str, KeyEntry], costs: object, clock: Callable[[], float]
) -> dict[str, Decision] | None:
    """Charge all keys by tokens that are here, or refuse the call by memory; None: other rules have to decide.

    Other threads come between. Where one of them takes the tokens of the last key, those of the others go back.
    """
    if costs.__class__ is not dict:
        return None
    found: list[tuple[str, KeyEntry, int]] = []
    now = clock()
    for key, cost in costs.items():
        if (entry := entries.get(key)) is None or cost.__class__ is not int or cost < 1:
            return None
        if not entry.tokens.has(cost, now):
            return _denied(key, entry, cost, now)
        found.append((key, entry, cost))
    if not _charge(found, clock):
        return None
    return {key: _told(entry, 0.0, "local", now) for key, entry, _ in found}


def _charge(found: list[tuple[str, KeyEntry, int]], clock: Callable[[], float]) -> bool:
    ends: list[float] = []
    for _, entry, cost in found:
        if (end := _take(entry, cost)) == NO_WAIT:
            break
        ends.append(end)
    if len(ends) == len(found) and (not ends or clock() < min(ends)):
        return True
    for (_, entry, cost), end in zip(found, ends, strict=False):
        if clock() < end:
            store_calls.refund(entry, cost)
        else:  # the process was stopped until the lease had ended
            entry.took_late(cost)
    return False


def _take(entry: KeyEntry, cost: int) -> float:
    """Spend tokens and return the instant before which they count, or NO_WAIT: somebody else was faster."""
    if cost is ONE:
        for before in entry.tokens.lock_free:
            return before
    return entry.take(cost)


def _denied(key: str, entry: KeyEntry, cost: int, now: float) -> dict[str, Decision] | None:
    reservoir = entry.reservoir
    if reservoir.forecast.is_failing(now) or not (wait := reservoir.forecast.denied_for(cost, now)):
        return None
    if not entry.locked(lambda: reservoir.admission.deny(cost, now)):
        return None
    return {key: _told(entry, wait, "denied", now)}


def _told(entry: KeyEntry, wait: float, source: Source, now: float) -> Decision:
    reservoir = entry.reservoir
    remaining = reservoir.forecast.remaining(now)
    return decision(reservoir.quota, remaining, wait, "fallback" if reservoir.state.lease.borrowed else source)
