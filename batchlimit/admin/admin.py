"""What operators do while processes run: set other quotas, take them back, and see who did what."""

from collections.abc import Mapping
from typing import Any, Self, Unpack

import redis

from batchlimit.admin.buckets import Buckets, Plan, planned
from batchlimit.admin.terms import Ledger, Terms, Wish, override_of, someone, wished
from batchlimit.base.setting import whole
from batchlimit.base.unique import Closing, Unique, register
from batchlimit.quota.overrides.override import Override, check_name
from batchlimit.quota.overrides.overrides import Change, Entry, Overrides
from batchlimit.quota.overrides.plan import Difference, Until, applying, difference, removal, setting
from batchlimit.quota.quota import Quota
from batchlimit.stores.client.address import look, sure
from batchlimit.stores.open import open_store
from batchlimit.stores.protocols import Ruled
from batchlimit.stores.redis import RedisStore


class Admin(Closing, Unique):
    """Changes quotas for processes that run. They obey within a lease: at most 1.5 s after their next request.

    It has 11 public methods, because operators do as many things.

    An override counts instead of the quota in code, whichever process starts or asks, until it is removed or has ended.
    One with an end covers one of its name without: that counts again when it has ended, or is removed.
    An exact key counts before patterns; of patterns the one with more letters of its own, then the one set later.
    Used tokens stay used, as a share of the burst.

    Args:
        store: a redis-py client, or a store that keeps overrides, such as the MemoryStore of a limiter.
        prefix: as of the limiters (default "batchlimit"); a store ignores it.
        who: who the log says it was (default None: user@machine).

    Attributes:
        buckets: looks into buckets, and fills them; `store` is the store that it opened or was given.

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
        clients = redis.Redis | redis.RedisCluster
        opened: Any = RedisStore(store, prefix=prefix) if isinstance(store, clients) else store
        if not isinstance(opened, Ruled):
            raise TypeError(f"a {type(store).__name__} keeps no overrides; use a redis.Redis client or a URL")
        self._opened, self._owns_store, self._prefix = opened, False, prefix
        self._who = someone() if who is None else who
        self.buckets = Buckets(opened, self._who)
        self._work_on(opened)
        register(self)

    def _work_on(self, store: Any) -> None:
        """From now on change this store; the testing kit has another one."""
        self.store, self.buckets._store, self._ledger = store, store, Ledger(store.rules)

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
            prefix, who: as for the class.
            connect_timeout, deadline: seconds that a connection, and that each reply, may take (default 1 each).

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
        return f"<{type(self).__name__} of {self.store!r}>"

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
        return self._ledger.look()[0]

    def set(self, name: str, quota: Quota | str | None = None, **terms: Unpack[Terms]) -> Override:
        """Set another quota for a key, or for all keys that match a pattern, whatever the code says.

        Args:
            name: a key, or a pattern with `*`, `?` or `[`; "*" is the default for all keys.
            quota: a Quota or its text; a rate of 0 refuses everything. Only another mode does without (default None).
            terms: `mode`, `weight`, `on_failure`, `until` and `why`, as Terms says.

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
        return self._ledger.put(lambda now: override_of(name, quota, terms, self._who, now), self._who)

    def apply(
        self, wanted: Mapping[str, Wish], *, prune: bool = False, why: str = "", dry_run: bool = False
    ) -> Difference:
        """Set many overrides in one change, all or none. Those that stand there already stay as they are.

        Args:
            wanted: of each name, as of `set`, a quota or its text, or a mapping with `quota` and the terms of `set`.
            prune: also remove all overrides that are not named (default False).
            why: the reason of those that name none (one line, default "").
            dry_run: change nothing (default False).

        Returns:
            The Difference.

        Raises:
            StoreUnavailable, RulesChanged, ValueError, TypeError: as for `set`.

        Example:
            >>> from batchlimit.stores import MemoryStore
            >>> admin = Admin(MemoryStore())
            >>> len(admin.apply({"search:*": "20/s", "export": {"mode": "open", "until": "1h"}}).set)
            2
            >>> [each.name for each in admin.apply({"search:*": "10/s"}, prune=True).removed]
            ['export']
        """

        def change(overrides: Overrides, now: float) -> tuple[Change, Difference]:
            found = difference(overrides, wished(wanted, why, self._who, now), now, prune=prune)
            planned = applying(overrides, found, self._who, why, now)
            return planned._replace(texts={}) if dry_run else planned, found

        return self._ledger.make(change)

    def hold(self, name: str, until: Until, *, why: str = "") -> Override:
        """Admit nothing for a key, or for all keys that match a pattern, for a time. Errors are those of `set`.

        Of two holds of one name the one that ends later counts. `open`, `set` and `unset` end it earlier.

        Args:
            name, until, why: as for `set`; an `until` of None: until it is removed.

        Returns:
            The Override that counts, whose rate is 0: this one, or the one that is there and ends later.

        Example:
            >>> from batchlimit.stores import MemoryStore
            >>> admin = Admin(MemoryStore())
            >>> override = admin.set("search:*", "20/s")
            >>> print(admin.hold("search:*", "30s").covered)
            search:* 20/s
        """
        terms = Terms(until=until, why=why)
        return self._ledger.put(lambda now: override_of(name, "0/s", terms, self._who, now), self._who, shortens=False)

    def open(self, name: str, until: Until, *, why: str = "") -> Override:
        """Admit everything for a key, or for all keys that match a pattern, for a time. Errors are those of `set`.

        The buckets are not asked meanwhile, and fill. `statistics().opened` counts what was admitted.

        Args:
            name, until, why: as for `set`; an `until` of None: until it is removed.

        Returns:
            The Override, without a quota.

        Example:
            >>> from batchlimit.stores import MemoryStore
            >>> print(Admin(MemoryStore()).open("search:*", "1h", why="an incident"))
            search:* open (an incident)
        """
        return self.set(name, mode="open", until=until, why=why)

    def plan(self, name: str, quota: Quota | str | None = None, **terms: Unpack[Terms]) -> Plan:
        """Return what `set` would do, and do nothing. Args and errors are those of `set`.

        It looks at some of the live buckets, by no more than 20,000 names of each server.

        Example:
            >>> from batchlimit.stores import MemoryStore
            >>> str(Admin(MemoryStore()).plan("search:*", "20/s"))
            'search:* 20/s'
        """
        overrides, now = self._ledger.look()
        override = override_of(name, quota, terms, self._who, now)
        setting(overrides, override, self._who, now)
        return planned(self.store, self._prefix, overrides, override, now)

    def unset(self, *names: str, why: str = "") -> tuple[str, ...]:
        """Remove overrides, also those that only processes know, after the store has lost them.

        What they covered counts again, and can be removed by another call; else another override, or the code.

        Args:
            names: keys and patterns, as they were set; `why` is the reason, for the log (one line, default "").

        Returns:
            The names of those that were set.

        Raises:
            StoreUnavailable, RulesChanged, ValueError, TypeError: as for `set`.

        Example:
            >>> from batchlimit.stores import MemoryStore
            >>> Admin(MemoryStore()).unset("search:ann")
            ()
        """
        before = self._ledger.make(lambda there, now: (removal(there, list(names), self._who, why, now), there))
        return tuple(name for name in map(check_name, names) if name in before.by_name)

    def clock(self) -> float:
        """Return the server's clock, by which overrides end (seconds since 1970).

        Raises:
            StoreUnavailable: the store does not answer.

        Example:
            >>> from batchlimit.stores import MemoryStore
            >>> Admin(MemoryStore()).clock() > 1_700_000_000
            True
        """
        return self._ledger.look()[1]

    def history(self, limit: int = 20) -> list[Entry]:
        """Return the last changes, newest first; the store keeps about a thousand.

        Args:
            limit: changes at most, at least 1 (default 20).

        Returns:
            An Entry each.

        Raises:
            StoreUnavailable: the store does not answer.
            ValueError, TypeError: `limit` is no whole number from 1.

        Example:
            >>> from batchlimit.stores import MemoryStore
            >>> Admin(MemoryStore()).history()
            []
        """
        return self._ledger.rules.log(whole("limit", limit))

    def close(self) -> None:
        """Close the store if `from_url` opened it. To close twice is no error."""
        if self._owns_store:
            self._opened.close()  # type: ignore[attr-defined]
