"""Protocols of what a Store may do beside `take`: spend at buckets of which nobody leases, and pause keys."""

import math
from typing import Any, Protocol, runtime_checkable

from batchlimit.bucket.messages import Groups, SpendReply
from batchlimit.quota.quota import Quota


class _SpendsTogether(Protocol):
    @property
    def spends_together(self) -> bool:
        """Whether many groups go in one call, and several keys in one group; else each call has one key."""


@runtime_checkable
class Spender(_SpendsTogether, Protocol):
    """Optional for a Store: it spends at buckets of which nobody leases. A store without it is asked by `take`.

    Example:
        >>> from batchlimit.stores import MemoryStore, Spender
        >>> isinstance(MemoryStore(), Spender)
        True
    """

    def spend(self, groups: Groups, *, look: bool = False, within: float = math.inf) -> SpendReply:
        """Charge each group of buckets, all of it or nothing; what happens to one is nothing to the others.

        Args:
            groups: what is to be spent, and which of it together.
            look: whether to tell the revision of the overrides (default False).
            within: seconds that somebody waits for the answer (default inf): later nothing is to be charged, if the
                store can help it. It may answer None for such a group.

        Returns:
            What became of each group.
        """


@runtime_checkable
class AsyncSpender(_SpendsTogether, Protocol):
    """Optional for an AsyncStore, as Spender is for a Store.

    Example:
        >>> import fakeredis
        >>> from batchlimit.stores import AsyncRedisStore, AsyncSpender
        >>> isinstance(AsyncRedisStore(fakeredis.FakeAsyncRedis()), AsyncSpender)
        True
    """

    async def spend(self, groups: Groups, *, look: bool = False, within: float = math.inf) -> SpendReply:
        """Charge each group of buckets, as Spender.spend does.

        Args:
            groups, look, within: as of Spender.spend, with the same defaults.

        Returns:
            What became of each group.
        """


class Pauses(Protocol):
    """The pauses and lines of a store's keys. Every method raises StoreUnavailable if there is no answer."""

    def pause(self, key: str, quota: Quota, seconds: float, why: str) -> float:
        """Lease and spend nothing of a `stored` key for so many seconds, above 0; return when the pause ends (s).

        Of two pauses the one that ends later counts. The quota is for a bucket that has to begin, `why` for people.
        """

    def resume(self, key: str) -> bool:
        """End the pause of a key now; return whether there was one."""

    def line_up(self, key: str, wait: float, spacing: float, longest: float) -> float:
        """Give the caller the next turn at a key; return the seconds until it. Nothing is charged.

        If nobody is in line the turn is after `wait`. The next one is `spacing` after it. A later turn than
        `longest` is returned, and stays free.
        """


@runtime_checkable
class Pausable(Protocol):
    """Optional for a Store: its keys may be paused.

    Example:
        >>> from batchlimit.stores import MemoryStore, Pausable
        >>> isinstance(MemoryStore(), Pausable)
        True
    """

    @property
    def pauses(self) -> Pauses:
        """The pauses of its keys."""


@runtime_checkable
class AsyncPausable(Protocol):
    """Optional for an AsyncStore, as Pausable is for a Store.

    Example:
        >>> import fakeredis
        >>> from batchlimit.stores import AsyncPausable, AsyncRedisStore
        >>> isinstance(AsyncRedisStore(fakeredis.FakeAsyncRedis()), AsyncPausable)
        True
    """

    @property
    def pauses(self) -> Any:
        """The pauses of its keys: Pauses whose methods are awaited."""


def no_pauses(store: object) -> TypeError:
    """Return the TypeError for a store that pauses no keys; it shows only the class."""
    return TypeError(f"a {type(store).__name__} pauses no keys; see batchlimit.stores.Pausable")
