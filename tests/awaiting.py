"""What is awaited, for threads: one event loop in a thread of its own."""

from typing import cast

from batchlimit.stores.optional import AsyncPausable, Pausable, Pauses
from batchlimit.stores.protocols import Ruled, RuleStore
from batchlimit.testing.contract.check import Blocking
from batchlimit.testing.contract.check import BlockingStore as BlockingStore
from batchlimit.testing.contract.check import awaited as awaited


def pauses_of(store: object) -> Pauses:
    """The pauses of any store."""
    if isinstance(store, BlockingStore):
        assert isinstance(store._inner, AsyncPausable)
        return cast(Pauses, Blocking(store._inner.pauses))
    assert isinstance(store, Pausable)
    return store.pauses


def rules_of(store: object) -> RuleStore:
    """The overrides of any store."""
    if isinstance(store, BlockingStore):
        assert isinstance(store._inner, Ruled)
        return cast(RuleStore, Blocking(store._inner.rules))
    assert isinstance(store, Ruled)
    return cast(RuleStore, store.rules)
