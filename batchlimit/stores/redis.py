"""Buckets in Redis or Valkey: each call is one EVALSHA of a script that does it all atomically."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from batchlimit.core.key import bucket_name, check_prefix
from batchlimit.core.lease import Ask, GiveBack, Grant, Level
from batchlimit.core.quota import Quota
from batchlimit.core.unique import Unique
from batchlimit.errors import StoreUnavailable
from batchlimit.stores.scripts import script
from batchlimit.stores.wire import give_back_arguments, read_grant, read_level, server_address, take_arguments


class RedisStore(Unique):
    """A Store on a redis-py client that the caller made, and keeps: it is used, never closed."""

    def __init__(self, client: "redis.Redis", *, prefix: str = "batchlimit") -> None:
        self._prefix = check_prefix(prefix)
        self._connect: Callable[[], redis.Redis] | None = None
        self._inherited: redis.Redis | None = None
        self._use(client)

    def _use(self, client: "redis.Redis") -> None:
        self._client = client
        # A registered script runs by its SHA; on NOSCRIPT, and only then, redis-py loads it and asks once more.
        self._take = client.register_script(script("take"))
        self._give_back = client.register_script(script("give_back"))
        self._peek = client.register_script(script("peek"))

    @classmethod
    def from_url(cls, url: str, *, prefix: str = "batchlimit", connect_timeout: float = 1.0) -> Self:
        """Use the server at `url`; a connection and a reply may each take `connect_timeout` seconds.

        Nothing is retried below us: a take that timed out may have been carried out, and only we know its number.
        """

        def connect() -> redis.Redis:
            return redis.Redis.from_url(
                url,
                socket_connect_timeout=connect_timeout,
                socket_timeout=connect_timeout,
                retry=Retry(NoBackoff(), 0),
            )

        store = cls(connect(), prefix=prefix)
        store._connect = connect
        return store

    def __repr__(self) -> str:
        return f"<RedisStore {self.address} prefix {self._prefix!r}>"

    @property
    def address(self) -> str:
        """Host, port and database, or the socket's path; never a password."""
        return server_address(self._client.get_connection_kwargs())

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        """See Store.take."""
        return read_grant(self._run(self._take, key, take_arguments(quota, ask)))

    def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        """See Store.give_back."""
        return int(self._run(self._give_back, key, give_back_arguments(quota, back))[0])

    def peek(self, key: str, quota: Quota) -> Level:
        """See Store.peek."""
        return read_level(self._run(self._peek, key, [quota.encode()]))

    def after_fork(self) -> None:
        """Take a client of the child's own: a lock of the old one may be held by a thread that is the parent's.

        A client that the caller made stays; redis-py itself drops the parent's connections in the child.
        """
        if self._connect is not None:
            self._inherited = self._client  # never let go of: its destructor wants those locks too
            self._use(self._connect())

    def close(self) -> None:
        """Close the client if this store made it."""
        if self._connect is not None:
            self._client.close()

    # The one place where redis-py's untyped replies come in.
    def _run(self, registered: Any, key: str, arguments: Sequence[str | int | float]) -> Sequence[Any]:
        try:
            reply: Sequence[Any] = registered(keys=[bucket_name(self._prefix, key)], args=arguments)
        except (redis.RedisError, OSError) as error:
            raise StoreUnavailable(f"{self.address} failed: {type(error).__name__}: {error}") from error
        return reply
