"""What the Redis stores of both APIs are made of; each of them has its own way to wait."""

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Self

from batchlimit.base.redaction import shown
from batchlimit.base.unique import Unique
from batchlimit.bucket.messages import Ask
from batchlimit.quota.key import check_prefix
from batchlimit.stores.client import factory
from batchlimit.stores.client.address import Address
from batchlimit.stores.client.rulebook import rules_name
from batchlimit.stores.client.scripts import ServerClocks, SpendScript, bucket_name
from batchlimit.stores.client.syntax import look, sure_redis
from batchlimit.stores.timeouts import TO_CONNECT

# A probe asks whether the store could serve a bucket now. It runs the real script, so it fails for every reason that
# fails a take: a replica, a full memory, an ACL, a script that does not end. It runs on another bucket in the same slot
# and asks for no tokens. That bucket expires within seconds.

PROBE = Ask("probe", 1, need=0, queued=0, want=0)


def probe_name(prefix: str, key: str) -> str:
    """Return the name of the bucket that a probe of this key asks; the hash tag keeps both in one slot."""
    return bucket_name(prefix, key) + ":probe"


def first(reply: Sequence[Any]) -> int:
    """Return the first number of a reply."""
    return int(reply[0])


class BaseRedisStore(Unique):
    """A store on a transport: one server, the primary that sentinels name, or a cluster."""

    _transport: Any
    _of_cluster: ClassVar[type]

    def __init__(self, client: Any, *, prefix: str = "batchlimit") -> None:
        self._prefix = check_prefix(prefix)
        self._connect: Callable[[], Any] | None = None  # None: the client is the caller's
        self._inherited: object = None
        self._connect_timeout, self._prompt = 0.0, False
        self._use(client)
        # In a cluster they are at another node than most buckets, and no script can read them.
        self._seen = () if self.is_cluster else (rules_name(prefix),)
        self._clocks, self._within = ServerClocks(), math.inf  # seconds that somebody waits for an answer
        self._spending = SpendScript("".join(self._seen), self._clocks)

    def _use(self, transport: Any) -> None:
        self._transport = transport

    @classmethod
    def from_url(
        cls, url: str, *, prefix: str = "batchlimit", connect_timeout: float = 1.0, deadline: float = 0.05
    ) -> Self:
        """Make a store with connections of its own. It connects at its first call, and never retries.

        Args:
            url: redis://, rediss://, valkey://, valkeys:// or unix://; redis+cluster://host:port,host:port;
                redis+sentinel://host:port,host:port/service/database.
            prefix: names of buckets begin with it (text, default "batchlimit").
            connect_timeout: for opening a connection, its greeting included (seconds, default 1.0).
            deadline: for each read of a reply (seconds, default 0.05).

        Returns:
            The store.

        Raises:
            ValueError: the URL or one of its options is wrong; the message shows no value.
        """
        found = look(url)
        del url  # no frame of a traceback holds the password
        return cls.at(sure_redis(found), prefix=prefix, connect_timeout=connect_timeout, deadline=deadline)

    @classmethod
    def at(
        cls, address: Address, *, prefix: str = "batchlimit", connect_timeout: float = 1.0, deadline: float = 0.05
    ) -> Self:
        """Make a store for an address, as `from_url` does for a URL."""
        connect = cls._connector(address, connect_timeout, deadline)
        store = cls(connect(), prefix=prefix)._owning(connect, connect_timeout, address)
        store._within = deadline
        return store

    @classmethod
    def _connector(cls, address: Address, connect_timeout: float, deadline: float) -> Callable[[], Any]:
        cls._check_options(address)
        return partial(cls._connected, address, factory.timeouts(connect_timeout, deadline))

    def _owning(self, connect: Callable[[], Any], connect_timeout: float, address: Address) -> Self:
        """From now on replace and close the client."""
        self._connect, self._connect_timeout, self._prompt = connect, connect_timeout, self._is_prompt_at(address)
        return self

    @staticmethod
    def _check_options(address: Address) -> None:
        raise NotImplementedError

    @staticmethod
    def _connected(address: Address, limits: factory.Timeouts) -> Any:
        """Return a transport to this address."""
        raise NotImplementedError

    @staticmethod
    def _is_prompt_at(address: Address) -> bool:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address} prefix {shown(self._prefix)}>"

    @property
    def address(self) -> str:
        """Hosts, ports and database, or the socket's path; without a password."""
        address: str = self._transport.address
        return address

    @property
    def is_cluster(self) -> bool:
        """Whether it is a cluster, by the URL or the client."""
        return isinstance(self._transport, self._of_cluster)

    @property
    def is_prompt(self) -> bool:
        """See Remote.is_prompt and AsyncRemote.is_prompt."""
        return self._prompt

    def _left(self, began: float) -> float:
        """Return for how long yet somebody waits who may have had to connect first (s); he `began` then."""
        return self._within + min(self._connect_timeout, TO_CONNECT * self._within) - (time.monotonic() - began)

    @property
    def spends_together(self) -> bool:
        """See Spender."""
        return not self.is_cluster

    def after_fork(self) -> None:
        """In a forked child: make a new client, because a thread of the parent may hold a lock of the old one.

        A client that the caller made stays; the caller has to renew one for tasks. That for threads drops the parent's
        connections by itself.
        """
        if self._connect is not None:
            self._inherited = self._inherited, self._transport  # kept for ever: its destructor would take those locks
            self._use(self._connect())
