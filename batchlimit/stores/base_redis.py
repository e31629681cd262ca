"""What the Redis stores of both APIs are made of, also beside buckets: overrides, pauses and shared slots."""

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Self

from batchlimit.base.key import check_prefix
from batchlimit.base.redaction import shown
from batchlimit.base.steps import Steps, followed
from batchlimit.base.unique import Unique
from batchlimit.bucket.messages import Ask, GiveBack
from batchlimit.bucket.slot_table import SlotAsk, SlotReply
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.quota import Quota
from batchlimit.stores.client import factory, scripts
from batchlimit.stores.client.address import OWN, Address, look, sure
from batchlimit.stores.client.diagnosis import ELSEWHERE, code_of
from batchlimit.stores.client.rulebook import Command, RedisRules, rules_name
from batchlimit.stores.client.scripts import bucket_name
from batchlimit.stores.client.transport import Subscription
from batchlimit.stores.guard import TO_CONNECT

_PROBE = Ask("probe", 1, need=0, queued=0, want=0)


def first(reply: Sequence[Any]) -> int:
    """Return the first number of a reply."""
    return int(reply[0])


class BaseRedisStore(Unique):
    """A store on a transport: one server, the primary that sentinels name, or a cluster."""

    is_cluster: bool
    """Whether it is a cluster, by the URL or the client."""
    is_prompt: bool
    """See Remote.is_prompt and AsyncRemote.is_prompt."""
    spends_together: bool
    """See Spender."""
    _transport: Any
    _of_server: ClassVar[Any]
    _of_sentinels: ClassVar[Any]
    _of_cluster: ClassVar[Any]
    """The transports of a client."""
    _own: Any
    _checked: Any
    """Those of a client of the store's own to one server, and to one whose connections it checks."""
    _api: Any
    """redis, or redis.asyncio."""
    _is_prompt_at: ClassVar[Any]
    _run: Callable[..., Any]
    _talk: Callable[..., Any]
    """Calls or awaits a function of a transport, with these arguments."""
    _follow: ClassVar[Any]
    """Calls or awaits steps."""

    def __init__(self, client: Any, *, prefix: str = "batchlimit") -> None:
        self._prefix = check_prefix(prefix)
        self._connect: Callable[[], Any] | None = None  # None: the client is the caller's
        self._inherited: object = None
        self._connect_timeout, self.is_prompt = 0.0, False
        self._use(self._transport_of(client))
        self.is_cluster = isinstance(self._transport, self._of_cluster)
        # In a cluster they are at another node than most buckets, and no script can read them.
        self._seen = () if self.is_cluster else (rules_name(prefix),)
        self.spends_together = not self.is_cluster
        self._clocks, self._within = scripts.ServerClocks(), math.inf  # seconds that somebody waits for an answer
        self._spending = scripts.SpendScript(self._prefix, "".join(self._seen), self._clocks)

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
        address = sure(found)
        if address.scheme in OWN:
            raise ValueError(f"no Redis has a URL of the scheme {address.scheme!r}")
        return cls.at(address, prefix=prefix, connect_timeout=connect_timeout, deadline=deadline)

    @classmethod
    def at(
        cls, address: Address, *, prefix: str = "batchlimit", connect_timeout: float = 1.0, deadline: float = 0.05
    ) -> Self:
        """Make a store for an address, as `from_url` does for a URL."""
        connect = cls._connector(address, connect_timeout, deadline)
        return cls(connect(), prefix=prefix)._owning(connect, address, connect_timeout, deadline)

    @classmethod
    def _connector(cls, address: Address, connect_timeout: float, deadline: float) -> Callable[[], Any]:
        """Return what makes a transport to an address."""
        api = cls._api
        factory.check_options(api, address)
        limits = factory.timeouts(connect_timeout, deadline)
        match address.topology:
            case "cluster":
                return lambda: cls._of_cluster(partial(factory.cluster_client, api, address, limits), str(address))
            case "sentinel":
                return lambda: cls._of_sentinels(factory.sentinel_client(api, address, limits))
            case _:
                kind = cls._checked if address.options.get("health_check_interval") else cls._own
                return lambda: kind(factory.server_client(api, address, limits))

    @classmethod
    def _transport_of(cls, client: Any) -> Any:
        """Return the transport of a caller's client; a transport is one already."""
        api = cls._api
        is_pipeline = hasattr(client, "command_stack")  # a subclass of its client's, that answers nothing by itself
        if is_pipeline or not (isinstance(client, api.Redis | api.RedisCluster) or hasattr(client, "run")):
            name = api.__name__
            raise TypeError(f"client must be a {name}.Redis or {name}.RedisCluster, not {shown(client)}")
        if isinstance(client, api.RedisCluster):
            return cls._of_cluster(lambda: client)
        return cls._of_server(client) if isinstance(client, api.Redis) else client

    def _owning(self, connect: Callable[[], Any], address: Address, connect_timeout: float, deadline: float) -> Self:
        """From now on replace and close the client."""
        self._connect, self.is_prompt = connect, self._is_prompt_at(address)
        self._connect_timeout, self._within = connect_timeout, deadline
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address} prefix {shown(self._prefix)}>"

    @property
    def address(self) -> str:
        """Hosts, ports and database, or the socket's path; without a password."""
        return str(self._transport.address)

    @property
    def repeats(self) -> bool:
        """Whether the client calls again what failed: a caller's own may."""
        return getattr(self._transport, "repeats", False)

    @property
    def rules(self) -> RedisRules:
        """See Ruled.rules."""
        return RedisRules(self._ask, self._run, self._follow, self._prefix)

    @property
    def pauses(self) -> "RedisPauses":
        """See Pausable."""
        return RedisPauses(self._run, self._prefix)

    def part(self, key: str) -> str:
        """See Remote.part."""
        return self._transport.part(bucket_name(self._prefix, key)) if self.is_cluster else ""

    def _ask(self, key: str, *commands: Command) -> Any:
        transport = self._transport
        return self._talk(transport, transport.ask, key, *commands)

    def give_back(self, key: str, quota: Quota, back: GiveBack) -> Any:
        """See Store.give_back."""
        return self._run("give_back", bucket_name(self._prefix, key), scripts.give_back_arguments(quota, back), first)

    def peek(self, key: str, quota: Quota) -> Any:
        """See Store.peek."""
        return self._run("peek", bucket_name(self._prefix, key), [quota.encoded], scripts.read_level)

    def _asked(self, key: str, quota: Quota, ask: Ask, within: float) -> Any:
        """Return, or await, what the script of a take replies."""
        return self._run(
            "take", bucket_name(self._prefix, key), self._words(key, quota, ask, within), lambda reply: reply
        )

    def _words(self, key: str, quota: Quota, ask: Ask, within: float) -> list[str | bytes]:
        return scripts.take_arguments(quota, ask, self._seen, self._clocks.latest(self.part(key), within))

    @followed
    def probe(self, key: str) -> Steps[None]:
        """See Remote.probe.

        It runs the real script, so it fails for every reason that fails a take: a replica, a full memory, an ACL, a
        script that does not end. It asks another bucket in the same slot, which expires within seconds, for no tokens.
        """
        name = bucket_name(self._prefix, key) + ":probe"
        try:
            yield self._run("take", name, scripts.take_arguments(scripts.PROBE_QUOTA, _PROBE), list)
        except BucketUnavailable as error:
            # The slot of the key is at another node. Any other error of one key concerns the probe's bucket alone.
            if isinstance(error.__cause__, Exception) and code_of(error.__cause__) in ELSEWHERE:
                raise

    def _left(self, began: float) -> float:
        """Return for how long yet somebody waits who may have had to connect first (s); he `began` then."""
        return self._within + min(self._connect_timeout, TO_CONNECT * self._within) - (time.monotonic() - began)

    def after_fork(self) -> None:
        """In a forked child: make a new client, because a thread of the parent may hold a lock of the old one.

        A client that the caller made stays; the caller has to renew one for tasks. That for threads drops the parent's
        connections by itself.
        """
        if self._connect is not None:
            self._inherited = self._inherited, self._transport  # kept for ever: its destructor would take those locks
            self._use(self._connect())


_SECOND = 1_000_000
_NONE = -1
"""What pause.lua says where there was no pause to lift."""


class RedisPauses:
    """The pauses under one prefix; see lua/pause.lua. Its methods are called or awaited, as `run` is."""

    __slots__ = ("_prefix", "_run")

    def __init__(self, run: Callable[..., Any], prefix: str) -> None:
        """`run` takes a script's name, a bucket's, arguments, and what reads the reply."""
        self._run, self._prefix = run, prefix

    def pause(self, key: str, quota: Quota, seconds: float, why: str) -> Any:
        arguments = scripts.pause_arguments(quota, seconds, why)
        return self._run("pause", bucket_name(self._prefix, key), arguments, lambda reply: first(reply) / _SECOND)

    def resume(self, key: str) -> Any:
        arguments = scripts.pause_arguments(scripts.PROBE_QUOTA, 0, "")
        return self._run("pause", bucket_name(self._prefix, key), arguments, lambda reply: first(reply) != _NONE)

    def line_up(self, key: str, wait: float, spacing: float, longest: float) -> Any:
        name = bucket_name(self._prefix, key) + ":line"
        arguments = [str(math.ceil(seconds * _SECOND)) for seconds in (wait, spacing, longest)]
        return self._run("line", name, arguments, lambda reply: first(reply) / _SECOND)


def slots_name(prefix: str, key: str) -> str:
    """Return the name of the hash of a limit, of a `stored` key; it is in the slot of the key's bucket."""
    return bucket_name(prefix, key) + ":slots"


class RedisSlots:
    """The shared limits under one prefix."""

    def __init__(
        self, run: Callable[..., Any], ask: Callable[..., Sequence[Any]], pubsub: Callable[[], Any], prefix: str
    ) -> None:
        self._run, self._ask, self._pubsub, self._prefix = run, ask, pubsub, prefix
        self._channel = f"{prefix}:instance:"

    def lend(self, key: str, ask: SlotAsk) -> SlotReply:
        reply: SlotReply = self._run(
            "lend", slots_name(self._prefix, key), scripts.lend_arguments(ask, self._channel), scripts.read_slots
        )
        return reply

    def subscribe(self, instance: str) -> Subscription:
        """Return the pushes for an instance, from when it is opened."""
        return Subscription(self._pubsub(), self._channel + instance)

    def knock(self, key: str, instance: str) -> None:
        """Publish to an instance, at the server that has the limit of a key; the push is about no limit."""
        self._ask(slots_name(self._prefix, key), ("PUBLISH", self._channel + instance, "- 0 0 -1 -"))

    def name(self, key: str) -> str:
        """Return the name by which pushes tell of a key."""
        return slots_name(self._prefix, key)
