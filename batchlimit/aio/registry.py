"""What all key entries of one limiter share: its keyspace, its event loop, its store, and its end."""

import asyncio
import contextlib
import math
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from batchlimit.aio.awaitable import ImmediateAnswer
from batchlimit.aio.guarded_store import GuardedStore
from batchlimit.aio.home import FileFollower, Home
from batchlimit.aio.key_entry import KeyEntry
from batchlimit.aio.spends import Spends
from batchlimit.aio.waiting_task import AsyncAcquireAll
from batchlimit.base.blocking import give_way
from batchlimit.base.forks import Forkables
from batchlimit.base.key import check_key
from batchlimit.base.steps import drive
from batchlimit.base.waiting import NO_WAIT
from batchlimit.base.waking import AT_ONCE
from batchlimit.errors import LimiterClosed
from batchlimit.events import log_event, named
from batchlimit.keyspace.base_registry import CLOSED, BaseRegistry, RuleReader
from batchlimit.keyspace.keyspace import Keyspace
from batchlimit.quota.overrides.code import CodeFile, Rule
from batchlimit.reservoir.options import Options
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.statistics import Statistics
from batchlimit.reservoir.waiter import NOBODY, Waiter
from batchlimit.stores.protocols import AsyncStore, Ruled

_PATIENCE = 2.0
"""How long (s) a closing limiter waits for the answers that are under way, and then for its tokens to go back."""
_AT_ONCE = 64
"""Give-backs that are under way at the same time when a limiter with many keys is closed."""


async def _return_tokens(entry: KeyEntry) -> None:
    """Return all tokens of a key, after one last request for what is owed."""
    fetch = entry.reservoir.lifecycle.last_ask(entry.home.clock())
    if fetch is not None and (task := entry.fetch_by_task(fetch)) is not None:
        await asyncio.wait([task])
        await asyncio.sleep(0)  # its answer is taken in by a callback
    if (back := entry.reservoir.lifecycle.drain()) is not None:
        await entry.give_back(back)


class Registry(BaseRegistry):
    """The keyspace of an AsyncRateLimiter, bound to one event loop at a time: the first that uses it, until it closes.

    It ends with the limiter and with the loop. In a forked child it begins anew, as another instance.
    """

    _lives: type[Home] = Home
    several = AsyncAcquireAll
    entries: dict[str, KeyEntry]
    store: GuardedStore
    _keyspace: Keyspace[KeyEntry]

    def __init__(self, store: AsyncStore, rule: Rule | CodeFile, options: Options, clock: Callable[[], float]) -> None:
        super().__init__(store, rule, options, clock)
        self.store = GuardedStore(store, options.deadline)
        rules = store.rules if isinstance(store, Ruled) else None
        self.rules = RuleReader(rules, clock, lambda steps: self._home.start(drive(steps)), self._reconsider)
        self._follower = FileFollower(self._go_by_file)
        self._inherited: object = None
        self._begin()
        _registries.add(self)
        if self.file is not None:
            self.file.lead(self._follower)

    def _begin(self) -> None:
        """Become an instance: one that the store has never heard of, on no loop."""
        self._keyspace = self._new_keyspace(self._make, lambda _: self._come_at(self._keyspace.dormant.due))
        self._home = self._lives(self.store, self.clock, self._keyspace.let_go)
        self.spends = Spends(self, self._keyspace.spending, self._come_at, self._home.start)
        self.due = math.inf  # when the timer comes to forget dormant keys
        self.loop: asyncio.AbstractEventLoop | None = None
        self._counting = threading.RLock()  # held to count keys, and while they change the policy they are counted by
        self.thread = 0  # whose loop is ours: on a hit, this is all there is time to look at
        self._closing: asyncio.Task[None] | None = None
        self._wrong: Exception | None = None  # what went wrong first while tokens were returned, at whichever key
        self._is_empty = False  # closed, and all that it held was returned, or is the store's to take back

    def settle_in(self) -> None:
        """Bind to the running loop, whole or not at all; RuntimeError while that of before is not closed."""
        loop = asyncio.get_running_loop()
        if self.loop is loop:
            self.thread = 0 if self.closed else threading.get_ident()  # a loop may go on in another thread
            return
        if self.loop is not None:
            self._leave_loop(self.loop)
        self.yes, self.no = ImmediateAnswer(True, loop), ImmediateAnswer(False, loop)
        self._home.move_to(loop)
        self._follower.bind(loop)
        self.due = math.inf  # what another timer had planned went with it
        self._come_at(self._keyspace.dormant.due)
        self._farewell: Any = self._say_farewell()  # typeshed knows nothing of ag_running
        with contextlib.suppress(StopIteration):  # up to its `yield`: it is known to the loop from here on
            self._farewell.__anext__().send(None)
        # Last: if anything before is interrupted, the next call does all of it anew.
        self.loop, self.thread = loop, 0 if self.closed else threading.get_ident()

    def _leave_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        if not loop.is_closed():
            raise RuntimeError("this limiter is in use on another event loop; make one limiter for each loop")
        self.spends.clear()
        self._keyspace.spending.clear()
        for entry in self.entries.values():
            entry.die()
        for entry in list(self.entries.values()):
            self._keyspace.let_go(entry)
        self.store.renew()
        if self.owns_store:
            self._opened.renew()

    async def _say_farewell(self) -> AsyncGenerator[None, None]:
        """Return all tokens when the loop ends: asyncio.run finishes every generator that was left before its end."""
        bound = self.yes
        try:
            yield
        finally:
            is_bound = bound is self.yes  # else this one's binding was interrupted, and done anew
            if is_bound and self._closing is not None and not self._is_empty:
                await asyncio.wait([self._closing])
            if is_bound and not self._is_empty:
                await self._return_all(list(self.entries.values()))
                await self._home.cancel()
                await self.store.stop()
                if self.owns_store:
                    await self._opened.disconnect()

    def entry(self, key: str) -> KeyEntry:
        """Return the key's entry on the running loop; make it if there is none. LimiterClosed after close()."""
        self.settle_in()
        try:
            return self.entries[key]
        except (KeyError, TypeError):
            return self.live_entry(key)

    def live_entry(self, key: str) -> KeyEntry:
        """Return the key's entry that has not retired; make it if there is none. LimiterClosed after close()."""
        quota = self.code.quota(check_key(key))
        self.check_open()
        entry = self._keyspace.find(key, quota)
        entry.changed()
        return entry

    def _make(self, key: str, reservoir: Reservoir) -> KeyEntry:
        return KeyEntry(key, reservoir, self._home)

    def ring(self) -> None:
        """Forget dormant keys that are idle by now, or some of them; the timer calls it when they are `due`."""
        self._come_at(min(self._keyspace.dormant.forget_idle(self.clock()), self.rules.expire()))

    def _reconsider(self) -> "asyncio.Task[None]":
        """Have all keys go by the overrides that are known now."""
        self._come_at(self.rules.known.next_end)
        return self._home.start(self._change_each(lambda entry: entry.reservoir.rule.reconsider(self.clock())))

    def _go_by_file(self) -> None:
        """Have all keys go by what the file says now."""
        assert self.file is not None
        with self._counting:
            self.code = self._made_with.by_file(self.file.limits, self.code, self.clock())
            self._keyspace.obey(self.code)
        if self.entries and not self.closed:
            self._home.start(self._change_each(self._recode))

    def _recode(self, entry: KeyEntry) -> None:
        with self._counting:
            self._keyspace.recode(entry)

    async def _change_each(self, change: Callable[[KeyEntry], None]) -> None:
        """Change all keys that are in use; other tasks run in between."""
        for number, entry in enumerate(list(self.entries.values()), start=1):
            change(entry)
            entry.changed()
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)

    def _come_at(self, at: float) -> None:
        if at < self.due:
            self.due = at
            self._home.watch(self)

    def statistics(self) -> Statistics:
        """Return what all key entries did, those that were dropped among them."""
        with self._counting:
            return self._counted(self._keyspace.census(), give_way)

    async def close(self) -> None:
        """Fail all waiters, give all tokens back, close a store of our own; then raise what went wrong first."""
        self.settle_in()
        await asyncio.shield(self._begin_to_close())

    def _begin_to_close(self) -> "asyncio.Task[None]":
        if self._closing is None or self._closing.cancelled():
            self.closed, self.thread = True, 0  # not even a hit is admitted
            entries = list(self.entries.values())  # now: the timer lets go of those that have retired
            for entry in entries:
                entry.reservoir.lifecycle.close(LimiterClosed(CLOSED), Waiter(0, NO_WAIT, NOBODY))
                entry.changed()
                entry.refill_gate.open()
            self._closing = self._home.start(self._close(entries))
        return self._closing

    async def _close(self, entries: Sequence[KeyEntry]) -> None:
        try:
            await self._return_all(entries)
        finally:
            for entry in entries:
                self._keyspace.let_go(entry)
            self._keyspace.clear()
            self._home.stop()
            await self.store.stop()
            if self.owns_store:
                await self._opened.aclose()
        self._is_empty = True
        if not self._farewell.ag_running:  # else it is what waits for us
            await self._farewell.aclose()
        if self._wrong is not None:
            raise self._wrong

    async def _return_all(self, entries: Sequence[KeyEntry]) -> None:
        """Return all tokens, as far as that can be done in time, once what is under way has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._home.finish(self._closing)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                for first in range(0, len(entries), _AT_ONCE):
                    some = entries[first : first + _AT_ONCE]
                    outcomes = await asyncio.gather(*map(_return_tokens, some), return_exceptions=True)
                    for entry, outcome in zip(some, outcomes, strict=True):
                        if isinstance(outcome, Exception):  # which is no reason to keep the others'
                            message = "tokens of %s were not given back; the others are"
                            log_event("limiter.not_closed", message, named(entry.key), error=outcome, key=entry.key)
                            self._wrong = self._wrong or outcome

    def abandon(self) -> None:
        """Close from wherever the last reference was dropped, which may be another thread."""
        if self.loop is None or self.closed:
            return
        with contextlib.suppress(RuntimeError):  # a loop that is closed: what was leased expires
            self.loop.call_soon_threadsafe(self._begin_to_close)

    def after_fork(self) -> None:
        """In the child: what the parent leased is the parent's, and so is its loop.

        Nothing of it is let go of: a destructor would write into the pipe that wakes the parent.
        """
        self._inherited = (self._inherited, dict(self.__dict__), dict(self.entries))
        self._keyspace.disown()
        self.rules.known.after_fork()
        self._follower.after_fork()
        self._begin()
        self.store.after_fork()


_registries: Forkables[Registry] = Forkables()
