"""The one seam between the APIs and whatever holds the buckets: a Store for threads, an AsyncStore for tasks.

A store that may be away can say more of that: it is a Remote, or an AsyncRemote, as well.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level
from batchlimit.errors import StoreUnavailable
from batchlimit.quota.quota import Quota


@runtime_checkable
class Store(Protocol):
    """Holds one bucket per key. Every method is atomic, thread-safe, and raises StoreUnavailable without an answer.

    Where only this key's bucket cannot be served, and others may, it raises BucketUnavailable, which is one too.
    A key is a checked, non-empty string (`core.key`); a quota's rates are all above 0: an API refuses rate 0 by
    itself. The first ask creates the bucket; a bucket untouched until it is full again may be forgotten.
    """

    @property
    def address(self) -> str:
        """Where this store is, for messages; never with a password."""
        ...

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        """Lease tokens; at most `ask.want` of them, whole ones, never past the quota."""
        ...

    def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        """Credit tokens once, never past the burst or what the host was known to hold; return how many."""
        ...

    def peek(self, key: str, quota: Quota) -> Level:
        """Look without changing anything."""
        ...

    def after_fork(self) -> None:
        """In a forked child: let go of what only the parent may use or stop."""
        ...

    def close(self) -> None:
        """Release what this store itself opened; a client that the caller made stays open."""
        ...


@runtime_checkable
class AsyncStore(Protocol):
    """A Store whose talk is awaited. All that is said of Store holds, but for threads: it serves one loop at a time."""

    @property
    def address(self) -> str:
        """Where this store is, for messages; never with a password."""
        ...

    async def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        """See Store.take."""
        ...

    async def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        """See Store.give_back."""
        ...

    async def peek(self, key: str, quota: Quota) -> Level:
        """See Store.peek."""
        ...

    def after_fork(self) -> None:
        """See Store.after_fork."""
        ...

    def renew(self) -> None:
        """After a loop that was closed under it: use none of the connections that there were."""
        ...

    async def disconnect(self) -> None:
        """Close what this store itself opened on this loop, which ends; the next call opens it anew, on another."""
        ...

    async def aclose(self) -> None:
        """Release what this store itself opened; a client that the caller made stays open."""
        ...


class _Parted(Protocol):
    def part(self, key: str) -> str:
        """Return which part of the store holds the key's bucket, for parts fail apart; "" where it has none. No I/O.

        "" also as long as nothing is known of the parts. A bucket may move from one to another at any time.
        """
        ...


@runtime_checkable
class Remote(_Parted, Protocol):
    """What a Store may say beyond that. One that does not is asked in threads of the limiter's own, and is one part."""

    @property
    def is_prompt(self) -> bool:
        """Whether each call within a `hurry` ends in time, or raises NotPrompt having sent nothing."""
        ...

    def probe(self, key: str) -> None:
        """Raise StoreUnavailable unless the key's bucket could be served just now, writes included; change no bucket.

        What is wrong with that one bucket alone, such as something else at its name, need not show.
        """
        ...


@runtime_checkable
class Pipelined(Protocol):
    """What a prompt Store may offer beyond that. One that does not is asked for one key after the other."""

    def take_many(self, asks: Sequence[tuple[str, Quota, Ask]]) -> Sequence[Grant | StoreUnavailable]:
        """Take for several keys in one round trip; in the place of each there is what `take` returns, or raises.

        StoreUnavailable is raised only if it concerns all of them.
        """
        ...


@runtime_checkable
class AsyncRemote(_Parted, Protocol):
    """What an AsyncStore may say beyond that."""

    @property
    def is_prompt(self) -> bool:
        """Whether it tells a call's `Watch` while that waits for a connection, or makes one: all else is the server."""
        ...

    async def probe(self, key: str) -> None:
        """See Remote.probe."""
        ...


@runtime_checkable
class AsyncSender(Protocol):
    """What a prompt AsyncStore may offer beyond that: an ask without a task. Where it can, a limiter asks by it."""

    def send(self, key: str, quota: Quota, ask: Ask) -> "asyncio.Future[Any] | None":
        """Ask in this turn of the loop; None: that takes waiting first, so `take` it is. Who cancels it has left."""
        ...

    def receive(self, answer: "asyncio.Future[Any]") -> Grant | None:
        """Say what came of an ask that was sent; raises as `take` does. None: nothing did, `take` says why."""
        ...


def no_store(store: object, *, for_tasks: bool) -> TypeError:
    """Return what to raise for what a limiter, for tasks or for threads, cannot use as its store.

    No more of it is shown than its class: it may be a URL with a password, which is for from_url.
    """
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
    """Whether it is of a class of this package, or of one made from it; without importing that."""
    return any(kind.__module__.startswith(package) for kind in type(thing).__mro__)
