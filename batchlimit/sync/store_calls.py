"""The requests of key entries that no miss sends alone: for several keys in one write, refunds, tokens that return."""

from collections.abc import Sequence

from batchlimit.base.waiting import NO_WAIT
from batchlimit.base.waking import Event
from batchlimit.bucket.messages import GiveBack
from batchlimit.errors import StoreUnavailable
from batchlimit.quota.failure_policy import CircuitOpen
from batchlimit.reservoir.waiter import Fail, Fetch, Waiter
from batchlimit.sync.guarded_store import GuardedStore
from batchlimit.sync.key_entry import KeyEntry, lose, report

TOGETHER = 32
"""Requests that leave in one write at most: a server takes 3 ms for so many, and callers of each key wait as long."""


def fetch_together(store: GuardedStore, requests: Sequence[tuple[KeyEntry, Fetch]]) -> None:
    """Ask a store that is pipelined for several keys in one round trip, and report each."""
    try:
        outcomes = store.take_many([(entry.key, request.quota, request.ask) for entry, request in requests])
    except BaseException:
        for entry, request in requests:
            lose(entry, request)
        raise
    for (entry, request), outcome in zip(requests, outcomes, strict=True):
        report(entry, request, outcome)


def give_back(entry: KeyEntry, back: GiveBack) -> None:
    """Return tokens, once; those that the store does not take expire there."""
    unsent = None
    try:
        entry.store.give_back(entry.key, entry.reservoir.quota, back)
    except CircuitOpen:
        unsent = back
    finally:
        entry.locked(lambda: entry.reservoir.gave_back(entry.clock(), unsent, back))


def refund(entry: KeyEntry, cost: int) -> bool:
    """Take back tokens that were admitted and not used; at most one round trip. False: the key entry has retired."""
    waiter = Waiter(cost, NO_WAIT, Event())

    def take_back() -> tuple[bool, GiveBack | None]:
        if entry.reservoir.state.is_retired:
            return False, None
        return True, entry.reservoir.corrections.refund(waiter, entry.clock())

    def leave() -> None:
        entry.locked(lambda: entry.reservoir.leave(waiter, entry.clock()))

    is_live, failed = True, None
    try:
        is_live, back = entry.locked(take_back)
        if back is not None:
            give_back(entry, back)
    except StoreUnavailable as error:
        leave()
        ended = entry.reservoir.lifecycle.ended  # then the error tells of our end, not of the store
        failed = Fail(ended or error)
    except BaseException:
        entry.finish(leave)
        leave()
        raise
    if failed is not None and entry.reservoir.state.fallback.fails_closed:
        raise failed.to_raise(entry.key)
    return is_live
