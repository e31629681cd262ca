"""What is awaited, for threads: one event loop in a thread of its own, and an AsyncStore with the face of a Store."""

import asyncio
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level
from batchlimit.quota.quota import Quota
from batchlimit.stores import AsyncStore
from batchlimit.stores.protocols import AsyncRemote

_DEADLINE = 100.0
"""How long to wait for an answer. Generous: a slow machine is no failure of what is tested."""


_starting = threading.Lock()  # held while the loop is made: a cache alone lets two threads make two


def _loop() -> asyncio.AbstractEventLoop:
    """One loop for all tests, which ends with the process."""
    with _starting:
        return _started()


@cache
def _started() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


async def _await(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return await call(*args, **kwargs)


def awaited(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call it on the loop, and return what it returns when it is awaited."""
    return asyncio.run_coroutine_threadsafe(_await(call, *args, **kwargs), _loop()).result(_DEADLINE)


class BlockingStore:
    """An AsyncStore for threads, so that one contract can be held against both kinds."""

    def __init__(self, inner: AsyncStore) -> None:
        self._inner = inner
        self.address = inner.address

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        grant: Grant = awaited(self._inner.take, key, quota, ask)
        return grant

    def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        return int(awaited(self._inner.give_back, key, quota, back))

    def peek(self, key: str, quota: Quota) -> Level:
        level: Level = awaited(self._inner.peek, key, quota)
        return level

    def part(self, key: str) -> str:
        assert isinstance(self._inner, AsyncRemote)
        return self._inner.part(key)

    def probe(self, key: str) -> None:
        assert isinstance(self._inner, AsyncRemote)
        awaited(self._inner.probe, key)

    def after_fork(self) -> None:
        self._inner.after_fork()

    def close(self) -> None:
        awaited(self._inner.aclose)
