"""check_store: whether a store keeps the contract; an AsyncStore is asked through the face of a Store."""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from batchlimit.stores.protocols import AsyncStore, Store
from batchlimit.testing.contract import lending, returns
from batchlimit.testing.contract.instance import StoreRule, rules_of

P = ParamSpec("P")
T = TypeVar("T")
_MODULES = (lending, returns)


def store_rules(seeds: int = 3) -> list[StoreRule]:
    """Return the rules that every store has to keep, for a test of each: `rule.check(store)`, with a new store.

    Args:
        seeds: how many random sequences of messages are sent, for each rule about them (default 3, at most 10).

    Returns:
        Rules, each with a `name` and a `check`.

    Example:
        >>> from batchlimit.stores import MemoryStore
        >>> for rule in store_rules():
        ...     if "share" in rule.name:
        ...         rule.check(MemoryStore())
    """
    return [rule for module in _MODULES for rule in rules_of(module, seeds)]


def check_store(make: Callable[[], Store | AsyncStore], seeds: int = 3) -> None:
    """Check that a store keeps all rules, and say which it breaks.

    Args:
        make: returns a new store whose buckets nobody has used, such as one with another prefix; for threads or for
            tasks. It is closed.
        seeds: as of `store_rules` (default 3).

    Raises:
        ExceptionGroup: of an error for each rule that is broken.

    Example:
        >>> from batchlimit.stores import MemoryStore
        >>> from batchlimit.testing import check_store
        >>> check_store(MemoryStore)
    """
    broken = [error for rule in store_rules(seeds) if (error := _error(rule, make)) is not None]
    if broken:
        raise ExceptionGroup(f"the store breaks {len(broken)} rules", broken)


def _error(rule: StoreRule, make: Callable[[], Store | AsyncStore]) -> Exception | None:
    made = make()
    store = BlockingStore(made) if isinstance(made, AsyncStore) else made
    try:
        rule.check(store)
    except Exception as error:  # noqa: BLE001  the store's own, which may be anything
        error.add_note(f"the rule: {rule.name.replace('_', ' ')}")
        return error
    finally:
        store.close()
    return None


_PATIENCE = 100.0
"""Seconds that an answer may take; generous, for a slow machine is no fault of the store."""


class _Loop:
    """One event loop for all stores, in a thread of its own that ends with the process."""

    def __init__(self) -> None:
        self._starting = threading.Lock()  # held to start the loop once
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        async def work() -> T:
            return await call(*args, **kwargs)

        return asyncio.run_coroutine_threadsafe(work(), self._started()).result(_PATIENCE)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, daemon=True).start()
            return self._loop


awaited = _Loop().run
"""Calls something on the loop, and returns what it returns when it is awaited."""


class Blocking:
    """A store whose methods are awaited, or a part of one, for threads."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if not callable(method):
            return method

        async def call(*arguments: Any, **options: Any) -> Any:
            told = method(*arguments, **options)
            return await told if inspect.isawaitable(told) else told

        return lambda *arguments, **options: awaited(call, *arguments, **options)


class BlockingStore(Blocking):
    """An AsyncStore for threads."""

    is_prompt = False

    @property
    def address(self) -> str:
        return str(self._inner.address)

    def close(self) -> None:
        awaited(self._inner.aclose)
