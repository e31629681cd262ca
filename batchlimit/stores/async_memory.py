"""Buckets in this process, for tasks: there is nothing to wait for, so nothing is waited for."""

from batchlimit.core.lease import Ask, GiveBack, Grant, Level
from batchlimit.core.quota import Quota
from batchlimit.core.unique import Unique
from batchlimit.stores.memory import MemoryStore


class AsyncMemoryStore(Unique):
    """An AsyncStore on a MemoryStore, which threads may use meanwhile."""

    __slots__ = ("_store",)
    is_prompt = True
    _instead = MemoryStore._instead

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"<AsyncMemoryStore on {self._store!r}>"

    @property
    def address(self) -> str:
        """For messages."""
        return self._store.address

    def part(self, key: str) -> str:
        """See Remote.part."""
        return self._store.part(key)

    async def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        """See Store.take."""
        return self._store.take(key, quota, ask)

    async def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        """See Store.give_back."""
        return self._store.give_back(key, quota, back)

    async def peek(self, key: str, quota: Quota) -> Level:
        """See Store.peek."""
        return self._store.peek(key, quota)

    async def probe(self, key: str) -> None:
        """See Remote.probe."""
        self._store.probe(key)

    def after_fork(self) -> None:
        """A lock that another thread of the parent held would stay locked for ever."""
        self._store.after_fork()

    def renew(self) -> None:
        """Nothing is tied to a loop."""

    async def disconnect(self) -> None:
        """Nothing is open."""

    async def aclose(self) -> None:
        """Nothing is open; the buckets go with the store."""
