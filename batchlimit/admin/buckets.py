"""The buckets of a store, as operators see them: one is looked into, filled or resumed; a change would touch others."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import redis

from batchlimit.base.key import check_key, stored
from batchlimit.bucket.state import BucketState, read_bucket
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.overrides.override import FOR_ALL, Override, check_line, is_pattern, literal_start
from batchlimit.quota.overrides.overrides import Overrides
from batchlimit.quota.quota import Quota
from batchlimit.stores.client.diagnosis import FAILURES, failure
from batchlimit.stores.client.rulebook import text, texts
from batchlimit.stores.client.scripts import bucket_name
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
        self._store.rules.note(name, told, "cleared" if forget else "refilled", self._who, why)
        return before


NAMES = 20_000
"""Names that SCAN looks at: on a server of today in 10 to 20 ms of its time, in steps of less than one."""
_STEP = 500


class Touch(NamedTuple):
    """A live bucket that a change would touch.

    Attributes:
        key: what is limited; of a long key, what its bucket is named by.
        before: the quota that its bucket obeys.
        after: what would hold, in a word or a quota.
    """

    key: str
    before: Quota
    after: str


class Plan(NamedTuple):
    """What `set` would do.

    Attributes:
        override: what it would set.
        touched: live buckets that it would touch, by key; only those among the names that were looked at.
        names: how many names were looked at; 0: the store shows none.
        is_whole: whether that were all of them.
        warnings: what may not be meant.

    Example:
        >>> from batchlimit.admin import Admin
        >>> from batchlimit.stores import MemoryStore
        >>> print(Admin(MemoryStore()).plan("search:*", "20/s"))
        search:* 20/s
    """

    override: Override
    touched: tuple[Touch, ...]
    names: int
    is_whole: bool
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        return str(self.override)


def planned(store: Any, prefix: str, overrides: Overrides, override: Override, now: float, most: int = NAMES) -> Plan:
    """Return what setting an override would do, by a look at no more than `most` names; raises StoreUnavailable."""
    if not isinstance(store, RedisStore):
        return Plan(override, (), 0, False, ())
    then = Overrides(1, [*(each for each in overrides if each.name != override.name), override])
    names, is_whole, touched = 0, True, []
    try:
        find = then.trial if override.is_trial else then.find
        for _, client in store.primaries():
            for keys, looked, is_left in _keys(client, prefix, override, most):
                named = [key for key in keys if find(key, now) is override]
                touched += _touches(client, prefix, override.said, named, now)
                names, is_whole = names + looked, is_whole and not is_left
    except redis.exceptions.NoPermissionError:
        return Plan(override, (), 0, False, ("not looked: this user may not SCAN, see docs/redis.md",))
    except FAILURES as error:
        raise failure(error, store.address) from error
    touched.sort()
    return Plan(override, tuple(touched), names, is_whole, tuple(_warnings(override, touched, names, is_whole)))


def _keys(client: Any, prefix: str, override: Override, most: int) -> Iterator[tuple[list[str], int, bool]]:
    """Yield keys of a server that begin as the override does, of how many names, and if others are not looked at."""
    if not override.is_pattern:
        yield [override.name], 1, False
        return
    start = "{" + prefix + ":"
    pattern = buckets_of(prefix, literal_start(override.name))
    cursor, looked, seen = 0, 0, set[str]()
    while not looked or (int(cursor) and looked < most):
        cursor, names = client.scan(cursor, match=pattern, count=_STEP)
        looked += _STEP
        found = {text(name)[len(start) : -1] for name in names} - seen
        seen |= found
        yield sorted(found), _STEP, bool(int(cursor)) and looked >= most


def buckets_of(prefix: str, begin: str = "") -> str:
    """Return the pattern by which SCAN finds buckets, those alone, whose keys begin so; it has no other wildcard."""
    return "{" + re.sub(r"([*?\[\]^\\])", r"\\\1", f"{prefix}:{begin}") + "*}"


def _touches(client: Any, prefix: str, after: str, keys: Sequence[str], now: float) -> list[Touch]:
    """Return what happens to the buckets of these keys, of those that have one here, in one round trip."""
    pipeline = client.pipeline(transaction=False)
    for key in keys:
        pipeline.hgetall(bucket_name(prefix, key))
    replies, found = pipeline.execute(raise_on_error=False) if keys else [], []
    for key, fields in zip(keys, replies, strict=True):
        if isinstance(fields, redis.exceptions.NoPermissionError):
            raise fields
        if not isinstance(fields, Exception):  # else it is at another node, or is no bucket
            with suppress(BucketUnavailable):  # it has expired meanwhile, or is damaged
                found.append(Touch(key, read_bucket(texts(fields), now).quota, after))
    return found


def _warnings(override: Override, touched: list[Touch], names: int, is_whole: bool) -> Iterator[str]:
    if override.is_for_all:
        yield f"{override.name!r} {FOR_ALL}"
    if not touched:
        seen = "" if is_whole else f" among the {names} names that were looked at"
        what = "matches no live bucket" if override.is_pattern else "has no live bucket"
        yield f"{override.name!r} {what}{seen}: nobody uses it now, or it is misspelt"
    quota = override.quota
    if quota is None or override.is_trial or quota.denies_all:
        return
    if (most := max((each.before.largest_cost for each in touched), default=0)) > quota.largest_cost:
        yield f"calls of more than {quota.largest_cost} tokens would be refused; up to {most} fit now"
