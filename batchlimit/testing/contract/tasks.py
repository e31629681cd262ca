"""An AsyncStore with the face of a Store, so that one contract is held against both kinds."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level
from batchlimit.quota.quota import Quota
from batchlimit.stores.protocols import AsyncRemote, AsyncStore

P = ParamSpec("P")
T = TypeVar("T")
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


class BlockingStore:
    """An AsyncStore for threads."""

    is_prompt = False

    def __init__(self, inner: AsyncStore) -> None:
        self._inner = inner
        self.address = inner.address

    def __repr__(self) -> str:
        return f"<BlockingStore on {self._inner!r}>"

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        """See Store.take."""
        return awaited(self._inner.take, key, quota, ask)

    def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        """See Store.give_back."""
        return awaited(self._inner.give_back, key, quota, back)

    def peek(self, key: str, quota: Quota) -> Level:
        """See Store.peek."""
        return awaited(self._inner.peek, key, quota)

    def part(self, key: str) -> str:
        """See Remote.part."""
        assert isinstance(self._inner, AsyncRemote)
        return self._inner.part(key)

    def probe(self, key: str) -> None:
        """See Remote.probe."""
        assert isinstance(self._inner, AsyncRemote)
        awaited(self._inner.probe, key)

    def after_fork(self) -> None:
        """See Store.after_fork."""
        self._inner.after_fork()

    def close(self) -> None:
        """See Store.close."""
        awaited(self._inner.aclose)
