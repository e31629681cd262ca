"""Pauses of a key by tasks: the store is told, and this process lets go of what it has leased."""

from batchlimit.aio import store_calls
from batchlimit.aio.registry import Registry
from batchlimit.base.waiting import NO_WAIT
from batchlimit.errors import StoreUnavailable
from batchlimit.quota.key import check_key, stored
from batchlimit.reservoir.options import check_pause, check_turn
from batchlimit.reservoir.waiter import NOBODY, Fail, Waiter


async def pause(registry: Registry, key: str, seconds: float, why: str) -> None:
    """Pause a key for the whole fleet; where the store is away, for this process, and StoreUnavailable is raised."""
    seconds = check_pause(seconds, why)
    entry, pauses = registry.entry(key), registry.store.pauses
    if (quota := entry.reservoir.state.to_ask_with) is None:
        return  # nothing is admitted there
    told = await store_calls.outcome(
        registry.store.call, entry.key, lambda: pauses.pause(entry.key, quota, seconds, why)
    )
    registry.check_open()
    left = seconds if isinstance(told, StoreUnavailable) else told
    if left:
        _hold(registry, key, left)
    if isinstance(told, StoreUnavailable):
        raise Fail(told).to_raise(key)


async def resume(registry: Registry, key: str) -> bool:
    """End the pause of a key."""
    entry, pauses = registry.entry(key), registry.store.pauses
    told = await store_calls.outcome(registry.store.call, entry.key, lambda: pauses.resume(entry.key))
    registry.check_open()
    if isinstance(told, StoreUnavailable):
        raise Fail(told).to_raise(key)
    entry = registry.live_entry(key)
    entry.reservoir.lifecycle.resume()
    entry.changed()
    return told


async def line_up(registry: Registry, key: str, wait: float, spacing: float, longest: float) -> float:
    """Return the seconds until the next turn at a key, of the whole fleet's; a turn after `longest` is not given."""
    registry.check_open()
    name, turn, pauses = stored(check_key(key)), check_turn(wait, spacing, longest), registry.store.pauses
    told = await store_calls.outcome(registry.store.call, name, lambda: pauses.line_up(name, *turn))
    registry.check_open()
    if isinstance(told, StoreUnavailable):
        raise Fail(told).to_raise(key)
    return told


def _hold(registry: Registry, key: str, seconds: float) -> None:
    """Let go of what is leased, and ask for nothing meanwhile."""
    entry = registry.live_entry(key)
    back = entry.reservoir.lifecycle.pause(seconds, entry.home.clock(), Waiter(0, NO_WAIT, NOBODY))
    if back is not None:
        store_calls.give_back(entry, back)
    entry.changed()
