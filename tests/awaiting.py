"""What is awaited, for threads: one event loop in a thread of its own."""

from collections.abc import Callable
from typing import Any

from batchlimit.quota.overrides.known import Published
from batchlimit.quota.overrides.overrides import Change, Entry, Overrides
from batchlimit.quota.quota import Quota
from batchlimit.stores.optional import AsyncPausable, AsyncPauses, Pausable, Pauses
from batchlimit.stores.protocols import AsyncRuled, AsyncRuleStore, Ruled, RuleStore
from batchlimit.testing.contract.check import BlockingStore as BlockingStore
from batchlimit.testing.contract.check import awaited as _awaited


def awaited(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call it on the loop, and return what it returns when it is awaited."""
    return _awaited(call, *args, **kwargs)


class BlockingRules:
    """The overrides of an AsyncStore, for threads."""

    def __init__(self, inner: AsyncRuleStore) -> None:
        self._inner = inner

    def read(self, known: int) -> Published:
        published: Published = awaited(self._inner.read, known)
        return published

    def change(self, change: Change) -> tuple[bool, int]:
        done: tuple[bool, int] = awaited(self._inner.change, change)
        return done

    def remind(self, overrides: Overrides) -> None:
        awaited(self._inner.remind, overrides)

    def log(self, count: int) -> list[Entry]:
        entries: list[Entry] = awaited(self._inner.log, count)
        return entries


class BlockingPauses:
    """The pauses of an AsyncStore, for threads."""

    def __init__(self, inner: AsyncPauses) -> None:
        self._inner = inner

    def pause(self, key: str, quota: Quota, seconds: float, why: str) -> float:
        return float(awaited(self._inner.pause, key, quota, seconds, why))

    def resume(self, key: str) -> bool:
        return bool(awaited(self._inner.resume, key))

    def line_up(self, key: str, wait: float, spacing: float, longest: float) -> float:
        return float(awaited(self._inner.line_up, key, wait, spacing, longest))


def pauses_of(store: object) -> Pauses:
    """The pauses of any store."""
    if isinstance(store, BlockingStore):
        assert isinstance(store._inner, AsyncPausable)
        return BlockingPauses(store._inner.pauses)
    assert isinstance(store, Pausable)
    return store.pauses


def rules_of(store: object) -> RuleStore:
    """The overrides of any store."""
    if isinstance(store, BlockingStore):
        assert isinstance(store._inner, AsyncRuled)
        return BlockingRules(store._inner.rules)
    assert isinstance(store, Ruled)
    return store.rules
