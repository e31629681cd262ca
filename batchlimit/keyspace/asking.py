"""Calls of a limiter that ask the store for themselves, whatever is leased: steps that threads and tasks take alike.

A `registry` is that of either API. Its `store.outcome` returns what the store says; a task awaits it.
"""

from typing import Any

from batchlimit.base.decision import Decision
from batchlimit.base.steps import Steps
from batchlimit.errors import StoreUnavailable
from batchlimit.quota.key import check_key, stored
from batchlimit.reservoir.options import check_pause, check_turn
from batchlimit.reservoir.waiter import Fail


def peek(registry: Any, key: str) -> Steps[Decision]:
    """Return how the next call of cost 1 would fare."""
    entry, clock = registry.entry(key), registry.clock
    reservoir = entry.reservoir
    told: Decision | None = reservoir.forecast.without_bucket(clock())
    if told is not None:
        return told
    level = yield registry.store.outcome(registry.store.peek, entry.key, reservoir.state.quota)
    if isinstance(level, StoreUnavailable):
        registry.check_open()  # else the error tells of our end, not of the store
        told = entry.locked(lambda: reservoir.forecast.without_store(clock()))
    else:
        told = entry.locked(lambda: reservoir.forecast.at_level(level, clock()))
    if told is None:
        raise reservoir.state.fallback.failure(level).to_raise(key)
    return told


def pause(registry: Any, key: str, seconds: float, why: str) -> Steps[None]:
    """Pause a key for the whole fleet; where the store is away, for this process, and StoreUnavailable is raised."""
    seconds = check_pause(seconds, why)
    entry, pauses = registry.entry(key), registry.store.pauses
    if (quota := entry.reservoir.state.to_ask_with) is None:
        return  # nothing is admitted there
    told = yield registry.store.outcome(registry.store.call, entry.key, pauses.pause, entry.key, quota, seconds, why)
    failed = _failure(registry, key, told)
    left = seconds if failed else told
    while left and not registry.live_entry(key).hold(left):
        pass  # it had just retired
    if failed:
        raise failed


def resume(registry: Any, key: str) -> Steps[bool]:
    """End the pause of a key; return whether there was one."""
    entry, pauses = registry.entry(key), registry.store.pauses
    was_paused = yield registry.store.outcome(registry.store.call, entry.key, pauses.resume, entry.key)
    if failed := _failure(registry, key, was_paused):
        raise failed
    entry = registry.live_entry(key)
    entry.locked(entry.reservoir.lifecycle.resume)
    return was_paused  # type: ignore[no-any-return]


def line_up(registry: Any, key: str, wait: float, spacing: float, longest: float) -> Steps[float]:
    """Return the seconds until the next turn at a key, of the whole fleet's; a turn after `longest` is not given."""
    registry.check_open()
    name, turn, pauses = stored(check_key(key)), check_turn(wait, spacing, longest), registry.store.pauses
    seconds = yield registry.store.outcome(registry.store.call, name, pauses.line_up, name, *turn)
    if failed := _failure(registry, key, seconds):
        raise failed
    return seconds  # type: ignore[no-any-return]


def _failure(registry: Any, key: str, told: object) -> Exception | None:
    if not isinstance(told, StoreUnavailable):
        return None
    registry.check_open()  # else the error tells of our end, not of the store
    return Fail(told).to_raise(key)
