"""What operators do to the bucket of one key: look into it, fill it, have it forget, end its pause."""

from typing import Any

from batchlimit.bucket.state import BucketState, read_bucket
from batchlimit.quota.key import check_key, stored
from batchlimit.quota.overrides.override import check_line, is_pattern
from batchlimit.stores.optional import Pausable, no_pauses
from batchlimit.stores.protocols import Resettable
from batchlimit.stores.redis import RedisStore


class Buckets:
    """The buckets of a store: `admin.buckets`.

    Example:
        >>> from batchlimit.admin import Admin
        >>> Admin.from_url("redis://localhost:6379/0").buckets
        <Buckets of <RedisStore redis://localhost:6379/0 prefix 'batchlimit'>>
    """

    __slots__ = ("_store", "_who")

    def __init__(self, store: Any, who: str) -> None:
        self._store, self._who = store, who

    def __repr__(self) -> str:
        return f"<Buckets of {self._store!r}>"

    def get(self, key: str) -> BucketState | None:
        """Return what the bucket of a key holds, and which instances lease from it; None: there is none, or it is full.

        Args:
            key: what is limited.

        Returns:
            The BucketState, as of the server's clock. Only a store in Redis or Valkey has one.

        Raises:
            StoreUnavailable: the store does not answer, or what lies there is no bucket.
            TypeError: the store is another one.

        Example:
            >>> from batchlimit.admin import Admin
            >>> from batchlimit.stores import MemoryStore
            >>> Admin(MemoryStore()).buckets.get("ann")
            Traceback (most recent call last):
            ...
            TypeError: a MemoryStore shows no buckets; use a redis.Redis client or a URL
        """
        if not isinstance(self._store, RedisStore):
            raise TypeError(f"a {type(self._store).__name__} shows no buckets; use a redis.Redis client or a URL")
        fields, now = self._store.rules.bucket(stored(check_key(key)))
        return read_bucket(fields, now) if fields else None

    def refill(self, key: str, *, why: str = "") -> tuple[float, ...] | None:
        """Fill the bucket of a key, but for what limiters have leased of it.

        What limiters hold and what they owe stays. In any time that includes one refill at most one burst more is
        admitted than the quota says.

        Args:
            key: what is limited; no pattern.
            why: the reason, for the log (one line, default "").

        Returns:
            The tokens that each bandwidth had; None: there was no bucket, so it was full already.

        Raises:
            StoreUnavailable: the store does not answer; the bucket may be full all the same, without a word in the log.
            ValueError, TypeError: it is no key, or the store cannot do that.

        Example:
            >>> from batchlimit import RateLimiter
            >>> from batchlimit.admin import Admin
            >>> from batchlimit.stores import MemoryStore
            >>> store = MemoryStore()
            >>> limiter = RateLimiter(store, "2/hour")
            >>> [limiter.try_acquire("ann") for _ in range(3)]
            [True, True, False]
            >>> admin = Admin(store, who="bob")
            >>> admin.buckets.refill("ann", why="a mistake of ours")
            (0.0,)
            >>> [(entry.name, entry.old, entry.new) for entry in admin.history()]
            [('ann', '0.0 tokens', 'refilled')]
        """
        return self._reset(key, why, forget=False)

    def clear(self, key: str, *, why: str = "") -> tuple[float, ...] | None:
        """Have the bucket of a key as if it was never used, but for what limiters have leased of it.

        It is full, as after `refill`, and obeys the quota of the limiter that asks next.

        Args:
            key, why: as of `refill`.

        Returns:
            As `refill`.

        Raises:
            StoreUnavailable, ValueError, TypeError: as for `refill`.

        Example:
            >>> from batchlimit.admin import Admin
            >>> from batchlimit.stores import MemoryStore
            >>> Admin(MemoryStore()).buckets.clear("ann") is None
            True
        """
        return self._reset(key, why, forget=True)

    def resume(self, key: str) -> bool:
        """End the pause of a key that a process has asked for, see `RateLimiter.pause`; the log does not tell of it.

        Args:
            key: what is limited; no pattern.

        Returns:
            Whether there was a pause.

        Raises:
            StoreUnavailable: the store does not answer.
            ValueError, TypeError: it is no key, or the store pauses none.

        Example:
            >>> from batchlimit import RateLimiter
            >>> from batchlimit.admin import Admin
            >>> from batchlimit.stores import MemoryStore
            >>> store = MemoryStore()
            >>> RateLimiter(store, "100/s").pause("api.example.com", 3600)
            >>> Admin(store).buckets.resume("api.example.com")
            True
        """
        if is_pattern(check_key(key)):
            raise ValueError(f"{key!r} is a pattern: name one key after the other")
        if not isinstance(self._store, Pausable):
            raise no_pauses(self._store)
        return self._store.pauses.resume(stored(key))

    def _reset(self, key: str, why: str, *, forget: bool) -> tuple[float, ...] | None:
        if is_pattern(check_key(key)):
            raise ValueError(f"{key!r} is a pattern: name one key after the other")
        if not isinstance(self._store, Resettable):
            raise TypeError(f"a {type(self._store).__name__} fills no buckets; use a redis.Redis client or a URL")
        check_line("why", why)
        name = stored(key)
        before = self._store.reset(name, forget=forget)
        told = "none" if before is None else "; ".join(f"{level:.1f}" for level in before) + " tokens"
        self._store.note(name, told, "cleared" if forget else "refilled", self._who, why)
        return before
