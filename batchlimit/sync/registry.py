"""What all key entries of one limiter share: its name to the store, its background thread, and its end."""

import atexit
import threading
import time
from collections.abc import Callable
from functools import partial
from os import getpid
from typing import TypeVar

from batchlimit.base import forks
from batchlimit.base.blocking import OwnLock, give_way, not_reentered
from batchlimit.base.forks import Forkables
from batchlimit.base.key import check_key
from batchlimit.base.steps import run
from batchlimit.base.waiting import NO_WAIT
from batchlimit.errors import LimiterClosed, StoreUnavailable
from batchlimit.events import log_event, named
from batchlimit.keyspace.base_registry import CLOSED, BaseRegistry, RuleReader
from batchlimit.keyspace.keyspace import Keyspace
from batchlimit.quota.overrides.code import CodeFile, Rule
from batchlimit.reservoir.options import Options
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.statistics import Statistics
from batchlimit.reservoir.waiter import Waiter
from batchlimit.stores.protocols import Ruled, Store
from batchlimit.sync.guarded_store import GuardedStore
from batchlimit.sync.key_entry import KeyEntry
from batchlimit.sync.refresher import Refresher
from batchlimit.sync.spends import Spends
from batchlimit.sync.waiting_thread import AcquireAll

T = TypeVar("T")
_PATIENCE = 2.0
"""How long (s) a closing limiter waits for its background thread, and for the answers that are under way."""


class Registry(BaseRegistry):
    """The keyspace of a RateLimiter under a lock, with the thread that looks after it and the store that it asks.

    It ends with the limiter, at exit, and in a forked child: there it begins anew, as another instance.
    """

    _refreshes: type[Refresher] = Refresher
    several = AcquireAll
    entries: dict[str, KeyEntry]
    store: GuardedStore
    _keyspace: Keyspace[KeyEntry]

    def __init__(self, store: Store, rule: Rule | CodeFile, options: Options, clock: Callable[[], float]) -> None:
        super().__init__(store, rule, options, clock)
        self.store = GuardedStore(store, options.deadline)
        rules = store.rules if isinstance(store, Ruled) else None
        in_thread = partial(threading.Thread, target=run, name="batchlimit-rules", daemon=True)
        self.rules = RuleReader(rules, clock, lambda steps: in_thread(args=(steps,)).start(), self._reconsider)
        self._begin()
        _registries.add(self)
        if self.file is not None:
            self.file.lead(self)

    def _begin(self) -> None:
        """Become an instance: one that the store has never heard of, with nothing leased and nobody waiting."""
        self._wrong: Exception | None = None  # what went wrong first while tokens were returned, at whichever key
        self._lock = OwnLock()  # held to touch the keyspace
        self._counting = threading.RLock()  # held to count keys, and while they change the policy they are counted by
        self._refresher = self._refreshes(self.clock, self.store, self._drop, self._tidy, self._drain)
        self._watch = self._refresher.watch  # one bound method for all keys
        self.finish = self._refresher.finish
        self._keyspace = self._new_keyspace(self._make, self._refresher.forget)
        self.spends = Spends(self, self._keyspace.spending, self._lock, self._refresher.come_by)

    def settle_in(self) -> None:
        """Begin anew in a forked child, also one of which Python was not told."""
        if getpid() != forks.process:
            forks.begin_anew()

    def entry(self, key: str) -> KeyEntry:
        """Return the key's entry, which may have retired; make it if there is none. LimiterClosed after close()."""
        if getpid() != forks.process:
            forks.begin_anew()
        try:
            return self.entries[key]
        except (KeyError, TypeError):
            return self._find(key)

    def live_entry(self, key: str) -> KeyEntry:
        """Return the key's entry that has not retired; make it if there is none. LimiterClosed after close()."""
        entry = self.entry(key)
        return self._find(key) if entry.reservoir.state.is_retired else entry

    def _find(self, key: str) -> KeyEntry:
        entry: KeyEntry | None = None
        while entry is None:
            code = self.code
            quota = code.quota(check_key(key))  # without the lock: it may be a function of the user's own
            with not_reentered(self._lock):
                self.check_open()
                entry = self._keyspace.find(key, quota) if code is self.code else None
        entry.locked(lambda: None)  # what callers see is published, and the background thread comes in time
        return entry

    def _make(self, key: str, reservoir: Reservoir) -> KeyEntry:
        return KeyEntry(key, reservoir, self.store, self.clock, self._watch, self.finish)

    def _drop(self, entry: KeyEntry) -> None:
        with not_reentered(self._lock):
            self._keyspace.let_go(entry)

    def _tidy(self) -> float:
        with not_reentered(self._lock):
            idle_at = self._keyspace.dormant.forget_idle(self.clock())
        return min(idle_at, self.rules.expire())

    def _reconsider(self) -> None:
        """Have all keys go by the overrides that are known now."""
        with not_reentered(self._lock):
            entries = list(self.entries.values())
        for entry in entries:
            entry.locked(partial(entry.reservoir.rule.reconsider, self.clock()))
        self._refresher.come_by(self.rules.known.next_end)

    def obey(self, said: object) -> None:
        """Have all keys go by what a file says now; what was used stays used."""
        assert self.file is not None
        with self._counting:
            with not_reentered(self._lock):
                self.code = self._made_with.by_file(self.file.limits, self.code, self.clock())
                self._keyspace.obey(self.code)
                entries = list(self.entries.values())
            for entry in entries:
                with not_reentered(self._lock):
                    entry.locked(partial(self._keyspace.recode, entry))

    def statistics(self) -> Statistics:
        """Return what all key entries did, those that were dropped among them."""
        with self._counting:
            with not_reentered(self._lock):
                census = self._keyspace.census()
            return self._counted(census, give_way)

    def close(self) -> None:
        """Fail all waiters, give all tokens back, close a store of our own; then raise what went wrong first."""
        with not_reentered(self._lock):
            self.closed = self.rules.is_closed = True
        self._refresher.stop()
        self._refresher.join(_PATIENCE)
        self._drain()
        with not_reentered(self._lock):
            wrong, self._wrong = self._wrong, None
        if wrong is not None:
            raise wrong

    def abandon(self) -> None:
        """Close without blocking, from wherever the last reference was dropped, even inside one of our locks."""
        self.closed = self.rules.is_closed = True
        if not self._refresher.stop():
            self._close_store()

    def after_fork(self) -> None:
        """In the child: what the parent leased is the parent's; spending it twice would break the promise."""
        self._keyspace.disown()
        self.rules.known.after_fork()
        self._begin()
        self.store.after_fork()

    def _drain(self) -> None:
        """Return all tokens; runs where the background thread ends, and again, with nothing to do, in close()."""
        with not_reentered(self._lock):
            entries = self._keyspace.clear()
        deadline = time.monotonic() + _PATIENCE
        ends = [self._attempt(entry, partial(_fail_waiters, entry)) for entry in entries]
        for entry, ended in zip(entries, ends, strict=True):
            self._attempt(entry, partial(_return_tokens, entry, ended, deadline))
        for entry in entries:
            self._attempt(entry, partial(self._remember, entry))
            self._refresher.forget(entry)
        self._close_store()

    def _attempt(self, entry: KeyEntry, act: Callable[[], T]) -> T | None:
        """Do this, and keep what goes wrong for the end: it is no reason not to do it for the other keys."""
        try:
            return act()
        except Exception as error:  # noqa: BLE001  see above
            message = "tokens of %s were not given back; the others are"
            log_event("limiter.not_closed", message, named(entry.key), error=error, key=entry.key)
            self._wrong = self._wrong or error
            return None

    def _remember(self, entry: KeyEntry) -> None:
        with not_reentered(self._lock):
            self._keyspace.remember(entry)

    def _close_store(self) -> None:
        self.store.stop()
        if self.owns_store:
            self._opened.close()


def _fail_waiters(entry: KeyEntry) -> threading.Event | None:
    """Fail the waiters of this key; return what is set when its request in flight has ended, if there is one."""
    ended, closed = threading.Event(), LimiterClosed(CLOSED)
    closer = Waiter(0, NO_WAIT, ended)
    return ended if entry.locked(lambda: entry.reservoir.lifecycle.close(closed, closer)) else None


def _return_tokens(entry: KeyEntry, ended: threading.Event | None, deadline: float) -> None:
    if ended is not None and not entry.sends:
        ended.wait(max(0.0, deadline - time.monotonic()))
    try:
        if (fetch := entry.locked(lambda: entry.reservoir.lifecycle.last_ask(entry.clock()))) is not None:
            entry.fetch(fetch)
        if (back := entry.locked(entry.reservoir.lifecycle.drain)) is not None:
            entry.give_back(back)
    except StoreUnavailable as error:
        message = "tokens of %s were not given back; they will expire: %s"
        log_event("tokens.not_returned", message, named(entry.key), error, key=entry.key, reason=str(error))


_registries: Forkables[Registry] = Forkables()


def _at_exit() -> None:
    for registry in _registries:
        try:
            registry.close()
        except Exception as error:  # noqa: BLE001  the others are to be closed too
            log_event("limiter.not_closed", "a limiter was not closed as it should; the others are", error=error)


atexit.register(_at_exit)
