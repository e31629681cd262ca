"""Pauses of a key by threads: the store is told, and this process lets go of what it has leased."""

from batchlimit.base.blocking import warn_in_loop
from batchlimit.base.waiting import NO_WAIT
from batchlimit.base.waking import Event
from batchlimit.bucket.messages import GiveBack
from batchlimit.errors import StoreUnavailable
from batchlimit.quota.key import check_key, stored
from batchlimit.reservoir.options import check_pause, check_turn
from batchlimit.reservoir.waiter import Fail, Waiter
from batchlimit.sync import store_calls
from batchlimit.sync.key_entry import KeyEntry
from batchlimit.sync.registry import Registry


def pause(registry: Registry, key: str, seconds: float, why: str) -> None:
    """Pause a key for the whole fleet; where the store is away, for this process, and StoreUnavailable is raised."""
    seconds = check_pause(seconds, why)
    warn_in_loop()
    entry, pauses, failed = registry.live_entry(key), registry.store.pauses, None
    quota, left = entry.reservoir.state.to_ask_with, seconds
    if quota is None:
        return  # nothing is admitted there
    try:
        left = registry.store.call(entry.key, pauses.pause, entry.key, quota, seconds, why)
    except StoreUnavailable as error:
        registry.check_open()
        failed = Fail(error)
    while left and not _hold(registry.live_entry(key), left):
        pass  # it had just retired
    if failed is not None:
        raise failed.to_raise(key)


def resume(registry: Registry, key: str) -> bool:
    """End the pause of a key."""
    warn_in_loop()
    entry, pauses, failed = registry.live_entry(key), registry.store.pauses, None
    was_paused = False
    try:
        was_paused = registry.store.call(entry.key, pauses.resume, entry.key)
    except StoreUnavailable as error:
        registry.check_open()
        failed = Fail(error)
    if failed is not None:
        raise failed.to_raise(key)
    entry.locked(entry.reservoir.lifecycle.resume)
    return was_paused


def line_up(registry: Registry, key: str, wait: float, spacing: float, longest: float) -> float:
    """Return the seconds until the next turn at a key, of the whole fleet's; a turn after `longest` is not given."""
    warn_in_loop()
    registry.check_open()
    name, turn, failed = stored(check_key(key)), check_turn(wait, spacing, longest), None
    try:
        return registry.store.call(name, registry.store.pauses.line_up, name, *turn)
    except StoreUnavailable as error:
        registry.check_open()
        failed = Fail(error)
    raise failed.to_raise(key)


def _hold(entry: KeyEntry, seconds: float) -> bool:
    """Let go of what is leased, and ask for nothing meanwhile; False: the key entry has retired."""
    waiter = Waiter(0, NO_WAIT, Event())

    def let_go() -> tuple[bool, GiveBack | None]:
        reservoir = entry.reservoir
        if reservoir.state.is_retired:
            return False, None
        return True, reservoir.lifecycle.pause(seconds, entry.clock(), waiter)

    def leave() -> None:
        entry.locked(lambda: entry.reservoir.leave(waiter, entry.clock()))

    try:
        is_live, back = entry.locked(let_go)
        if back is not None:
            store_calls.give_back(entry, back)
    except StoreUnavailable:  # what does not arrive expires there
        leave()
        return True
    except BaseException:
        entry.finish(leave)
        leave()
        raise
    return is_live
