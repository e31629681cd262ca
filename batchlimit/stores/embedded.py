"""Buckets in a real Valkey that this process starts and stops."""

import asyncio
from collections.abc import Sequence
from typing import Any

from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level
from batchlimit.errors import StoreUnavailable
from batchlimit.quota.quota import Quota
from batchlimit.stores.async_redis import AsyncRedisStore
from batchlimit.stores.embedded_server import EmbeddedServer
from batchlimit.stores.redis import RedisStore


class EmbeddedStore:
    """A store on a server of its own, which lives as long as the store does."""

    __slots__ = ("_server", "_store")

    def __init__(self, *, prefix: str = "batchlimit", connect_timeout: float = 1.0, deadline: float = 0.05) -> None:
        self._server = EmbeddedServer()
        try:
            self._store = RedisStore.from_url(
                self._server.url, prefix=prefix, connect_timeout=connect_timeout, deadline=deadline
            )
        except BaseException:
            self._server.close()
            raise

    def __repr__(self) -> str:
        return f"<EmbeddedStore on {self._server!r}>"

    @property
    def url(self) -> str:
        """Where other processes of this user join the same buckets, while this store lives."""
        return self._server.url

    @property
    def address(self) -> str:
        """Where this store is, for messages."""
        return self._store.address

    @property
    def is_prompt(self) -> bool:
        """See Remote.is_prompt."""
        return self._store.is_prompt

    def part(self, key: str) -> str:
        """See Remote.part."""
        return self._store.part(key)

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        """Lease tokens; at most `ask.want` of them, whole ones, never past the quota."""
        return self._store.take(key, quota, ask)

    def take_many(self, asks: Sequence[tuple[str, Quota, Ask]]) -> list[Grant | StoreUnavailable]:
        """See Pipelined."""
        return self._store.take_many(asks)

    def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        """Credit tokens once, never past the burst or what the host was known to hold; return how many."""
        return self._store.give_back(key, quota, back)

    def peek(self, key: str, quota: Quota) -> Level:
        """Look without changing anything."""
        return self._store.peek(key, quota)

    def probe(self, key: str) -> None:
        """See Remote.probe."""
        self._store.probe(key)

    def after_fork(self) -> None:
        """In a forked child: go on as a client; the server stays the parent's."""
        self._server.after_fork()
        self._store.after_fork()

    def close(self) -> None:
        """Close the connections and stop the server."""
        self._store.close()
        self._server.close()


class AsyncEmbeddedStore:
    """An AsyncStore on a server of its own, which lives as long as it does. Making one blocks while that starts."""

    __slots__ = ("_server", "_store")

    def __init__(self, *, prefix: str = "batchlimit", connect_timeout: float = 1.0, deadline: float = 0.05) -> None:
        self._server = EmbeddedServer()
        try:
            self._store = AsyncRedisStore.from_url(
                self._server.url, prefix=prefix, connect_timeout=connect_timeout, deadline=deadline
            )
        except BaseException:
            self._server.close()
            raise

    def __repr__(self) -> str:
        return f"<AsyncEmbeddedStore on {self._server!r}>"

    @property
    def address(self) -> str:
        """Where this store is, for messages."""
        return self._store.address

    @property
    def is_prompt(self) -> bool:
        """See AsyncRemote.is_prompt."""
        return self._store.is_prompt

    def part(self, key: str) -> str:
        """See Remote.part."""
        return self._store.part(key)

    async def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        """See Store.take."""
        return await self._store.take(key, quota, ask)

    def send(self, key: str, quota: Quota, ask: Ask) -> "asyncio.Future[Any] | None":
        """See AsyncSender.send."""
        return self._store.send(key, quota, ask)

    def receive(self, answer: "asyncio.Future[Any]") -> Grant | None:
        """See AsyncSender.receive."""
        return self._store.receive(answer)

    async def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        """See Store.give_back."""
        return await self._store.give_back(key, quota, back)

    async def peek(self, key: str, quota: Quota) -> Level:
        """See Store.peek."""
        return await self._store.peek(key, quota)

    async def probe(self, key: str) -> None:
        """See Remote.probe."""
        await self._store.probe(key)

    def after_fork(self) -> None:
        """In a forked child: go on as a client; the server stays the parent's."""
        self._server.after_fork()
        self._store.after_fork()

    def renew(self) -> None:
        """Connect anew."""
        self._store.renew()

    async def disconnect(self) -> None:
        """Close the connections; the server lives on."""
        await self._store.disconnect()

    async def aclose(self) -> None:
        """Close the connections and stop the server."""
        await self._store.aclose()
        await asyncio.to_thread(self._server.close)
