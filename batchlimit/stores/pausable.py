"""Protocols of stores whose keys may be paused, and whose callers line up."""

from typing import Protocol, runtime_checkable

from batchlimit.quota.quota import Quota


class Pauses(Protocol):
    """The pauses and lines of a store's keys. Every method raises StoreUnavailable if there is no answer."""

    def pause(self, key: str, quota: Quota, seconds: float, why: str) -> float:
        """Lease and spend nothing of a key for so long.

        Args:
            key: which bucket; a checked key, as `batchlimit.quota.key.stored` returns it.
            quota: the Quota of the key, should its bucket have to begin.
            seconds: until the pause ends; above 0. Of two pauses the one that ends later counts.
            why: for people.

        Returns:
            Seconds until the pause ends that counts.
        """
        ...

    def resume(self, key: str) -> bool:
        """End the pause of a key now.

        Returns:
            Whether there was one.
        """
        ...

    def line_up(self, key: str, wait: float, spacing: float, longest: float) -> float:
        """Give the caller the next turn at a key; nothing is charged.

        Args:
            key: which line.
            wait: seconds until the first turn, if nobody is in line.
            spacing: seconds from this turn to the next.
            longest: seconds; a turn that is later is told, and not given.

        Returns:
            Seconds until the turn.
        """
        ...


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
        ...


class AsyncPauses(Protocol):
    """Pauses whose methods are awaited."""

    async def pause(self, key: str, quota: Quota, seconds: float, why: str) -> float:
        """See Pauses.pause."""
        ...

    async def resume(self, key: str) -> bool:
        """See Pauses.resume."""
        ...

    async def line_up(self, key: str, wait: float, spacing: float, longest: float) -> float:
        """See Pauses.line_up."""
        ...


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
    def pauses(self) -> AsyncPauses:
        """The pauses of its keys."""
        ...


def no_pauses(store: object) -> TypeError:
    """Return the TypeError for a store that pauses no keys; it shows only the class."""
    return TypeError(f"a {type(store).__name__} pauses no keys; see batchlimit.stores.Pausable")
