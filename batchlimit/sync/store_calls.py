"""The requests of key entries that no miss sends alone: for several keys in one write, refunds, tokens that return."""

from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from batchlimit.base.blocking import warn_in_loop
from batchlimit.base.waiting import NO_WAIT
from batchlimit.base.waking import Event
from batchlimit.bucket.messages import GiveBack
from batchlimit.errors import StoreUnavailable
from batchlimit.quota.failure_policy import CircuitOpen
from batchlimit.reservoir.waiter import Fail, Fetch, Waiter
from batchlimit.sync.guarded_store import GuardedStore
from batchlimit.sync.key_entry import KeyEntry, lose, report

P = ParamSpec("P")
T = TypeVar("T")
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
        entry.store.give_back(entry.key, entry.reservoir.state.quota, back)
    except CircuitOpen:
        unsent = back
    finally:
        entry.locked(lambda: entry.reservoir.gave_back(entry.clock(), unsent, back))


def refund(entry: KeyEntry, cost: int) -> bool:
    """Take back tokens that were admitted and not used; at most one round trip. False: the key entry has retired."""
    waiter = Waiter(cost, NO_WAIT, Event())
    is_live, error = _correct(entry, waiter, lambda: entry.reservoir.lifecycle.refund(waiter, entry.clock()))
    if error is not None and entry.reservoir.state.fallback.fails_closed:
        ended = entry.reservoir.lifecycle.ended  # then the error tells of our end, not of the store
        raise Fail(ended or error).to_raise(entry.key)
    return is_live


def debit(entry: KeyEntry, tokens: int) -> bool:
    """Charge tokens that were used and not admitted. False: the key entry has retired."""
    return entry.locked(lambda: entry.reservoir.lifecycle.debit(tokens, entry.clock()))


def hold(entry: KeyEntry, seconds: float) -> bool:
    """Let go of what is leased, and ask for nothing meanwhile; False: the key entry has retired."""
    waiter = Waiter(0, NO_WAIT, Event())
    is_live, _ = _correct(entry, waiter, lambda: entry.reservoir.lifecycle.pause(seconds, entry.clock(), waiter))
    return is_live  # what does not arrive expires there


def _correct(
    entry: KeyEntry, waiter: Waiter, change: Callable[[], GiveBack | None]
) -> tuple[bool, StoreUnavailable | None]:
    """Change something, and send what goes back by that; return whether the key entry is live, and what went wrong."""

    def begin() -> tuple[bool, GiveBack | None]:
        return (False, None) if entry.reservoir.state.is_retired else (True, change())

    def leave() -> None:
        entry.locked(lambda: entry.reservoir.leave(waiter, entry.clock()))

    try:
        is_live, back = entry.locked(begin)
        if back is not None:
            give_back(entry, back)
    except StoreUnavailable as error:
        leave()
        return True, error
    except BaseException:
        entry.finish(leave)
        leave()
        raise
    return is_live, None


def outcome(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | StoreUnavailable:
    """Return what a store says, or what is wrong with it."""
    warn_in_loop()
    try:
        return call(*args, **kwargs)
    except StoreUnavailable as error:
        return error
