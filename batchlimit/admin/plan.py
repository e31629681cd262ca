"""What a change would touch: live buckets, seen by a look that is bounded."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import redis

from batchlimit.bucket.state import read_bucket
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.overrides.override import FOR_ALL, Override, literal_start
from batchlimit.quota.overrides.overrides import Overrides
from batchlimit.quota.quota import Quota
from batchlimit.stores.client.diagnosis import FAILURES, failure
from batchlimit.stores.client.rulebook import text
from batchlimit.stores.client.scripts import bucket_name
from batchlimit.stores.redis import RedisStore

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
            look = _BucketLook(client, prefix, override)
            for keys in look.keys(most):
                touched += look.touches([key for key in keys if find(key, now) is override], now)
            names, is_whole = names + look.names, is_whole and look.is_whole
    except redis.exceptions.NoPermissionError:
        return Plan(override, (), 0, False, ("not looked: this user may not SCAN, see docs/redis.md",))
    except FAILURES as error:
        raise failure(error, store.address) from error
    touched.sort()
    return Plan(override, tuple(touched), names, is_whole, tuple(_warnings(override, touched, names, is_whole)))


class _BucketLook:
    """A look at the buckets of one server whose keys an override names."""

    def __init__(self, client: "redis.Redis", prefix: str, override: Override) -> None:
        self._client: Any = client
        self._prefix, self._override = prefix, override
        self.names, self.is_whole = 0, True

    def keys(self, most: int) -> Iterator[list[str]]:
        """Yield the keys that begin as the pattern does, some at a time, from at most so many names."""
        if not self._override.is_pattern:
            self.names += 1
            yield [self._override.name]
            return
        start = "{" + self._prefix + ":"
        begin = start + literal_start(self._override.name)
        pattern = "".join(f"\\{letter}" if letter in "*?[]^\\" else letter for letter in begin) + "*}"
        cursor, seen = 0, set[str]()
        while True:
            cursor, names = self._client.scan(cursor, match=pattern, count=_STEP)
            self.names += _STEP
            found = {text(name)[len(start) : -1] for name in names} - seen
            seen |= found
            yield sorted(found)
            if not int(cursor) or self.names >= most:
                self.is_whole = not int(cursor)
                return

    def touches(self, keys: Sequence[str], now: float) -> list[Touch]:
        """Return what happens to the buckets of these keys, of those that have one here, in one round trip."""
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.hgetall(bucket_name(self._prefix, key))
        replies, found = pipeline.execute(raise_on_error=False) if keys else [], []
        for key, fields in zip(keys, replies, strict=True):
            if isinstance(fields, redis.exceptions.NoPermissionError):
                raise fields
            if not isinstance(fields, Exception):  # else it is at another node, or is no bucket
                with suppress(BucketUnavailable):  # it has expired meanwhile, or is damaged
                    state = read_bucket({text(name): text(value) for name, value in fields.items()}, now)
                    found.append(Touch(key, state.quota, self._override.said))
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
