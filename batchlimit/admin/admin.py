"""What operators do while processes run: set other quotas, take them back, and see who did what."""

import getpass
import socket
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import redis

from batchlimit.admin import changes
from batchlimit.admin.plan import Plan, planned
from batchlimit.bucket.state import BucketState, read_bucket
from batchlimit.overrides.key_rule import Mode
from batchlimit.overrides.log import Change, Entry
from batchlimit.overrides.override import Override, check_line, check_name, is_pattern
from batchlimit.overrides.overrides import Overrides
from batchlimit.overrides.plan import Until, end_of, removal, setting
from batchlimit.quota.failure_policy import FailurePolicy, Kind
from batchlimit.quota.key import check_key, stored
from batchlimit.quota.quota import Quota
from batchlimit.stores.client.syntax import look, sure
from batchlimit.stores.open import open_store
from batchlimit.stores.protocols import Resettable, Ruled
from batchlimit.stores.redis import RedisStore
from batchlimit.unique import Unique

_Rest = tuple[Mode, int | None, FailurePolicy | Kind | None]


class Admin(Unique):
    """Changes quotas for processes that run. They obey within a lease: at most 1.5 s after their next request.

    An override counts instead of the quota in code, whichever process starts or asks, until it is removed or has ended.
    An exact key counts before patterns. Of patterns the one with more characters that stand for themselves counts,
    then the one that was set later.

    Args:
        store: a redis-py client, or a store that keeps overrides, such as the MemoryStore of a limiter.
        prefix: as of the limiters (default "batchlimit"); a store ignores it.
        who: who the log says it was (default None: user@machine).

    Raises:
        TypeError: the store keeps no overrides.

    Example:
        >>> from batchlimit.admin import Admin
        >>> from batchlimit.stores import MemoryStore
        >>> admin = Admin(MemoryStore(), who="ann")
        >>> print(admin.set("search:*", "20/s", until="1h", why="the index is slow"))
        search:* 20/s (the index is slow)
        >>> [entry.who for entry in admin.history()]
        ['ann']
    """

    def __init__(
        self, store: "redis.Redis | redis.RedisCluster | Ruled", *, prefix: str = "batchlimit", who: str | None = None
    ) -> None:
        clients = (redis.Redis, redis.RedisCluster)
        opened: Any = RedisStore(store, prefix=prefix) if isinstance(store, clients) else store
        if not isinstance(opened, Ruled):
            raise TypeError(f"a {type(store).__name__} keeps no overrides; use a redis.Redis client or a URL")
        self._store: Any = opened
        self._rules, self._owns_store, self._prefix = opened.rules, False, prefix
        self._who = _someone() if who is None else who

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        prefix: str = "batchlimit",
        who: str | None = None,
        connect_timeout: float = 1.0,
        deadline: float = 1.0,
    ) -> Self:
        """Connect to the store at `url`, at the first call; `close` closes it.

        Args:
            url: as of the limiters; memory:// would be a store that nobody else has.
            prefix: as of the limiters (default "batchlimit").
            who: as for the class.
            connect_timeout: seconds that a connection may take (default 1).
            deadline: seconds that each reply may take (default 1).

        Returns:
            The Admin.

        Raises:
            ValueError, TypeError: the URL cannot be read, or another argument cannot work.
        """
        found = look(url)
        del url  # the frames of a traceback show no password
        store: Any = open_store(sure(found), prefix=prefix, connect_timeout=connect_timeout, deadline=deadline)
        made = cls(store, prefix=prefix, who=who)
        made._owns_store = True
        return made

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._store!r}>"

    @property
    def store(self) -> Any:
        """The store that it opened or was given."""
        return self._store

    def overrides(self) -> Overrides:
        """Return all overrides that are set, those among them that have ended.

        Returns:
            The Overrides, which can be iterated and have a `revision`.

        Raises:
            StoreUnavailable: the store does not answer.
            ValueError: what stands there was damaged, or written by a later version.

        Example:
            >>> from batchlimit.stores import MemoryStore
            >>> len(Admin(MemoryStore()).overrides())
            0
        """
        return changes.seen(self._rules)[0]

    def set(
        self,
        name: str,
        quota: Quota | str | None = None,
        *,
        mode: Mode = "enforce",
        weight: int | None = None,
        on_failure: FailurePolicy | Kind | None = None,
        until: Until = None,
        why: str = "",
    ) -> Override:
        """Set another quota for a key, or for all keys that match a pattern, whatever the code says.

        Used tokens stay used, as a share of the burst.

        Args:
            name: a key, or a pattern with `*`, `?` or `[`; "*" is the default for all keys.
            quota: a Quota or its text; a rate of 0 refuses everything. Only another mode does without (default None).
            mode: "enforce" (default). "shadow" without a quota: the quotas that count decide, their refusals are
                counted, and everything is admitted. "shadow" with a quota: a trial beside what counts; it is only
                counted what it would refuse, as each process estimates. "open": see `open`.
            weight: where tokens are short, each instance gets by this weight at these keys (default None: as before).
            on_failure: "closed", "open", "local" or a FailurePolicy while the store is away (default None: as the code
                says). Set it before the store is away: then nobody hears of it.
            until: how long it counts: seconds, a text such as "1h" or "1h30m", a timedelta, or a datetime with its
                zone. It ends by the server's clock, by itself (default None: it counts until it is removed).
            why: the reason, for the log and for others (one line, default "").

        Returns:
            The Override.

        Raises:
            StoreUnavailable: the store does not answer; the override may be set all the same.
            RulesChanged: another operator changed this override at the same time; nothing of yours is set.
            ValueError, TypeError: an argument cannot work, or what stands in the store cannot be read.

        Example:
            >>> from batchlimit.stores import MemoryStore
            >>> Admin(MemoryStore()).set("search:ann", "5/s burst 10").quota
            Quota(rate=5.0, burst=10, also=())
        """
        return self._set(lambda now: self._override(name, quota, until, why, now, (mode, weight, on_failure)))

    def hold(self, name: str, until: Until, *, why: str = "") -> Override:
        """Admit nothing for a key, or for all keys that match a pattern, for a time. Errors are those of `set`.

        Args:
            name: a key or a pattern.
            until: as for `set`; None: until it is removed.
            why: the reason (one line, default "").

        Returns:
            The Override, whose rate is 0.

        Example:
            >>> from batchlimit.stores import MemoryStore
            >>> print(Admin(MemoryStore()).hold("search:*", "30s"))
            search:* 0/s
        """
        return self.set(name, "0/s", until=until, why=why)

    def open(self, name: str, until: Until, *, why: str = "") -> Override:
        """Admit everything for a key, or for all keys that match a pattern, for a time. Errors are those of `set`.

        The buckets are not asked meanwhile, and fill. `statistics().opened` counts what was admitted.

        Args:
            name: a key or a pattern.
            until: as for `set`; None: until it is removed.
            why: the reason (one line, default "").

        Returns:
            The Override, which has no quota.

        Example:
            >>> from batchlimit.stores import MemoryStore
            >>> print(Admin(MemoryStore()).open("search:*", "1h", why="an incident"))
            search:* open (an incident)
        """
        return self.set(name, mode="open", until=until, why=why)

    def bucket(self, key: str) -> BucketState | None:
        """Return what the bucket of a key holds, and which instances lease from it; None: there is none, or it is full.

        Args:
            key: what is limited.

        Returns:
            The BucketState, as of the server's clock. Only a store in Redis or Valkey has one.

        Raises:
            StoreUnavailable: the store does not answer, or what lies there is no bucket.
            TypeError: the store is another one.

        Example:
            >>> admin = Admin.from_url("redis://localhost:6379/0")
            >>> admin
            <Admin of <RedisStore redis://localhost:6379/0 prefix 'batchlimit'>>
        """
        if not isinstance(self._store, RedisStore):
            raise TypeError(f"a {type(self._store).__name__} shows no buckets; use a redis.Redis client or a URL")
        fields, now = self._store.rules.bucket(check_key(key))
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
            >>> from batchlimit.stores import MemoryStore
            >>> store = MemoryStore()
            >>> limiter = RateLimiter(store, "2/hour")
            >>> [limiter.try_acquire("ann") for _ in range(3)]
            [True, True, False]
            >>> admin = Admin(store, who="bob")
            >>> admin.refill("ann", why="a mistake of ours")
            (0.0,)
            >>> [(entry.name, entry.old, entry.new) for entry in admin.history()]
            [('ann', '0.0 tokens', 'refilled')]
        """
        return self._reset(key, why, forget=False)

    def clear(self, key: str, *, why: str = "") -> tuple[float, ...] | None:
        """Have the bucket of a key as if it was never used, but for what limiters have leased of it.

        It is full, as after `refill`, and obeys the quota of the limiter that asks next.

        Args:
            key: what is limited; no pattern.
            why: the reason, for the log (one line, default "").

        Returns:
            As `refill`.

        Raises:
            StoreUnavailable, ValueError, TypeError: as for `refill`.

        Example:
            >>> from batchlimit.stores import MemoryStore
            >>> Admin(MemoryStore()).clear("ann") is None
            True
        """
        return self._reset(key, why, forget=True)

    def plan(
        self,
        name: str,
        quota: Quota | str | None = None,
        *,
        mode: Mode = "enforce",
        weight: int | None = None,
        on_failure: FailurePolicy | Kind | None = None,
        until: Until = None,
        why: str = "",
    ) -> Plan:
        """Return what `set` would do, and do nothing. Args and errors are those of `set`.

        It looks at some of the live buckets, by no more than 20,000 names of each server.

        Example:
            >>> from batchlimit.stores import MemoryStore
            >>> str(Admin(MemoryStore()).plan("search:*", "20/s"))
            'search:* 20/s'
        """
        overrides, now = changes.seen(self._rules)
        override = self._override(name, quota, until, why, now, (mode, weight, on_failure))
        setting(overrides, override, self._who, now)
        return planned(self._store, self._prefix, overrides, override, now)

    def unset(self, *names: str, why: str = "") -> tuple[str, ...]:
        """Remove overrides: the code counts again, or another override that matches.

        Args:
            names: keys and patterns, as they were set.
            why: the reason, for the log (one line, default "").

        Returns:
            The names of those that were set, and are no more.

        Raises:
            StoreUnavailable, RulesChanged, ValueError, TypeError: as for `set`.

        Example:
            >>> from batchlimit.stores import MemoryStore
            >>> Admin(MemoryStore()).unset("search:ann")
            ()
        """
        removed = changes.make(self._rules, lambda overrides, now: removal(overrides, list(names), self._who, why, now))
        return tuple(name for name in map(check_name, names) if name in removed.texts)

    def clock(self) -> float:
        """Return the server's clock, by which overrides end (seconds since 1970).

        Raises:
            StoreUnavailable: the store does not answer.

        Example:
            >>> from batchlimit.stores import MemoryStore
            >>> Admin(MemoryStore()).clock() > 1_700_000_000
            True
        """
        return self._rules.read(-1).now

    def history(self, limit: int = 20) -> list[Entry]:
        """Return the last changes, newest first; the store keeps about a thousand.

        Args:
            limit: changes at most (default 20).

        Returns:
            An Entry for each override that was changed.

        Raises:
            StoreUnavailable: the store does not answer.

        Example:
            >>> from batchlimit.stores import MemoryStore
            >>> Admin(MemoryStore()).history()
            []
        """
        return self._rules.log(limit)

    def close(self) -> None:
        """Close the store if `from_url` opened it. To close twice is no error."""
        if self._owns_store:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _reset(self, key: str, why: str, *, forget: bool) -> tuple[float, ...] | None:
        if is_pattern(check_key(key)):
            raise ValueError(f"{key!r} is a pattern: name one key after the other")
        if not isinstance(self._store, Resettable):
            raise TypeError(f"a {type(self._store).__name__} fills no buckets; use a redis.Redis client or a URL")
        check_line("why", why)
        before = self._store.reset(key, forget=forget)
        told = "none" if before is None else "; ".join(f"{level:.1f}" for level in before) + " tokens"
        self._store.note(stored(key), told, "cleared" if forget else "refilled", self._who, why)
        return before

    def _set(self, override: Callable[[float], Override]) -> Override:
        """Set what is made at the server's clock."""
        made: list[Override] = []

        def plan(overrides: Overrides, now: float) -> Change:
            made[:] = [override(now)]
            return setting(overrides, made[0], self._who, now)

        changes.make(self._rules, plan)
        return made[0]

    def _override(
        self, name: str, quota: Quota | str | None, until: Until, why: str, now: float, rest: _Rest
    ) -> Override:
        mode, weight, policy = rest
        policy = FailurePolicy.parse(policy) if isinstance(policy, str) else policy
        wanted = Quota.parse(quota) if isinstance(quota, str) else quota
        return Override(
            check_name(name), wanted, end_of(until, now), round(now, 3), why, self._who, mode, weight, policy
        )


def _someone() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container without a user of this number
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
