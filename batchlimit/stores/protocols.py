"""Protocols of stores: a Store is for threads, an AsyncStore for tasks.

A store that may be unreachable can implement Remote or AsyncRemote too, which let the limiter handle outages better.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from batchlimit.bucket.messages import Ask, GiveBack, Grant, Groups, Level, SpendReply
from batchlimit.errors import StoreUnavailable
from batchlimit.quota.overrides.known import Published
from batchlimit.quota.overrides.overrides import Change, Entry, Overrides
from batchlimit.quota.quota import Quota

T = TypeVar("T")


@runtime_checkable
class Store(Protocol):
    """Holds one bucket per key. Every method is atomic and thread-safe.

    Every method raises StoreUnavailable if there is no answer, and BucketUnavailable, a subclass, if only this key's
    bucket cannot be served. Keys are checked, and have at most 256 bytes of UTF-8: of a longer one the limiter gives
    its digest (`batchlimit.base.key`). All rates of a quota are above 0: the limiter refuses a rate of 0 itself. The
    first ask creates the bucket. A bucket may be dropped when it is full again.

    Example:
        >>> from batchlimit.stores import MemoryStore, Store
        >>> isinstance(MemoryStore(), Store)
        True
    """

    @property
    def address(self) -> str:
        """The store's address, for messages; without a password."""

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        """Lease whole tokens: at most `ask.want`, and never more than the quota allows.

        Args:
            key: which bucket; a checked key, as `batchlimit.base.key.stored` returns it.
            quota: the Quota of the key; its rates are above 0.
            ask: the request of one limiter instance.

        Returns:
            The Grant, which has no tokens if fewer than `ask.need` can be granted.
        """

    def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        """Credit tokens once: never above the burst, nor more than the instance held.

        Args:
            key, quota: as of `take`.
            back: the tokens that return.

        Returns:
            Tokens credited.
        """

    def peek(self, key: str, quota: Quota) -> Level:
        """Look at the bucket without changing it.

        Args:
            key, quota: as of `take`.

        Returns:
            The bucket's Level.
        """

    def after_fork(self) -> None:
        """In a forked child: stop using the connections and servers of the parent."""

    def close(self) -> None:
        """Close the connections that this store opened; a client that the caller made stays open."""


@runtime_checkable
class AsyncStore(Protocol):
    """A Store whose methods are awaited. It serves one event loop at a time, and is not for threads.

    Example:
        >>> import fakeredis
        >>> from batchlimit.stores import AsyncRedisStore, AsyncStore
        >>> isinstance(AsyncRedisStore(fakeredis.FakeAsyncRedis()), AsyncStore)
        True
    """

    @property
    def address(self) -> str:
        """The store's address, for messages; without a password."""

    async def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        """See Store.take."""

    async def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        """See Store.give_back."""

    async def peek(self, key: str, quota: Quota) -> Level:
        """See Store.peek."""

    def after_fork(self) -> None:
        """See Store.after_fork."""

    def renew(self) -> None:
        """After the event loop was closed: use none of its connections."""

    async def disconnect(self) -> None:
        """Close the connections that this store opened on this event loop; the next call opens new ones."""

    async def aclose(self) -> None:
        """Close the connections that this store opened; a client that the caller made stays open."""


class _Parted(Protocol):
    def part(self, key: str) -> str:
        """Return the name of the store's part that holds the key's bucket; "" for a store of one part. No I/O.

        Each part has a circuit breaker of its own. It is "" too while the parts are not known. A bucket may move from
        one part to another at any time.
        """


@runtime_checkable
class Remote(_Parted, Protocol):
    """Optional for a Store. A store without it is called in background threads of the limiter, and has one part."""

    @property
    def is_prompt(self) -> bool:
        """Whether each call ends by the deadline of its thread, or raises NeedsConnection before sending."""

    def probe(self, key: str) -> None:
        """Raise StoreUnavailable unless the key's bucket could be served now, writes included. Change no bucket.

        An error of that one bucket alone, such as another type at its name, need not be found.
        """


@runtime_checkable
class Pipelined(Protocol):
    """Optional for a prompt Store. A store without it is asked for one key after the other."""

    def take_many(self, asks: Sequence[tuple[str, Quota, Ask]]) -> Sequence[Grant | StoreUnavailable]:
        """Take for several keys in one round trip; return each Grant or error; raise what concerns all of them."""


@runtime_checkable
class AsyncRemote(_Parted, Protocol):
    """Optional for an AsyncStore, as Remote is for a Store."""

    @property
    def is_prompt(self) -> bool:
        """Whether it pauses the watch of a call while the call waits for a connection or opens one."""

    async def probe(self, key: str) -> None:
        """See Remote.probe."""


Sent = tuple[asyncio.Future[Any], Callable[[Any], T | None]]
"""A reply to come, and what reads it then, or raises; None: the call is to be repeated, by `take` or `spend`."""


@runtime_checkable
class AsyncSender(Protocol):
    """Optional for a prompt AsyncStore: calls without a task, which a limiter prefers."""

    def send(self, key: str, quota: Quota, ask: Ask) -> Sent[Grant] | None:
        """Send an ask in this turn of the event loop; None if it would have to wait first: then call `take`."""

    def send_spend(self, groups: Groups, *, look: bool, within: float) -> Sent[SpendReply] | None:
        """Send spends in this turn, as `send` does; None: then call `spend`."""


class RuleStore(Protocol):
    """The overrides that operators set. Every method raises StoreUnavailable if there is no answer."""

    def read(self, known: int) -> Published:
        """Return all of them and their revision, or only the revision if it is the known one."""

    def change(self, change: Change) -> tuple[bool, int]:
        """Make a change unless the revision is not the one seen; return whether it was made, and the revision."""

    def log(self, count: int) -> list[Entry]:
        """Return the last changes, newest first."""

    def note(self, key: str, old: str, new: str, who: str, why: str) -> None:
        """Append to the log what an operator did to a bucket."""

    def remind(self, overrides: Overrides) -> None:
        """Keep for a minute, for people, what the caller obeys and `read` does not have any more."""


@runtime_checkable
class Ruled(Protocol):
    """Optional for a Store or an AsyncStore: it keeps overrides, and its grants tell their revision."""

    @property
    def rules(self) -> Any:
        """The overrides of all its buckets: a RuleStore, whose methods are awaited if the store is for tasks."""


@runtime_checkable
class Resettable(Ruled, Protocol):
    """Optional for a Store: an operator may fill its buckets."""

    def reset(self, key: str, *, forget: bool) -> tuple[float, ...] | None:
        """Fill a bucket up to what is leased of it; `forget` also which quota it obeys, for the next asker says it.

        It returns the tokens that each bandwidth had; None: there is no bucket, so it is full.
        """


def no_store(store: object, *, for_tasks: bool) -> TypeError:
    """Return the TypeError for what is no store; it shows the class alone, for it may be a URL with a password."""
    kind, asyncs = type(store).__name__, isinstance(store, AsyncStore) or _comes_from("redis.asyncio.", store)
    if asyncs and not for_tasks:
        return TypeError(f"this {kind} is for asyncio, and a RateLimiter for threads: use AsyncRateLimiter")
    if for_tasks and not asyncs and (isinstance(store, Store) or _comes_from("redis.", store)):
        return TypeError(
            f"this {kind} is for threads, and an AsyncRateLimiter for asyncio: use RateLimiter, or redis.asyncio"
        )
    ours = "an AsyncRateLimiter" if for_tasks else "a RateLimiter"
    wanted = "redis.asyncio.Redis client or an AsyncStore" if for_tasks else "redis.Redis client or a Store"
    return TypeError(f"{ours} needs a {wanted}, not a {kind}; a URL goes to from_url")


def _comes_from(package: str, thing: object) -> bool:
    """Whether its class, or a base class, is from this package; without importing the package."""
    return any(kind.__module__.startswith(package) for kind in type(thing).__mro__)
