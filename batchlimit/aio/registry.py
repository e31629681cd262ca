"""What all key entries of one limiter share: its event loop, its name to the store, its timer, and its end."""

import asyncio
import contextlib
import logging
import os
import secrets
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextvars import Context
from typing import Any, TypeVar

from batchlimit.aio.awaitable import Known
from batchlimit.aio.dormant_sweep import DormantSweep
from batchlimit.aio.guarded_store import GuardedStore
from batchlimit.aio.key_entry import KeyEntry
from batchlimit.aio.timer import Due, Timer
from batchlimit.clock import steady
from batchlimit.errors import LimiterClosed
from batchlimit.quota.key import check_key, place_of, stored
from batchlimit.quota.quota import Quota
from batchlimit.redaction import shown
from batchlimit.reservoir.dormant import DormantKeys
from batchlimit.reservoir.eviction import ClockCache
from batchlimit.reservoir.keyspace import Keyspace
from batchlimit.reservoir.options import Options
from batchlimit.reservoir.statistics import Statistics
from batchlimit.stores.protocols import AsyncStore

T = TypeVar("T")
_logger = logging.getLogger("batchlimit")
_CLOSED = "this limiter was closed"
_PATIENCE = 2.0
"""How long (s) a closing limiter waits for the answers that are under way, and then for its tokens to go back."""
_AT_ONCE = 64
"""Give-backs that are under way at the same time when a limiter with many keys is closed."""


class Registry:
    """Makes key entries, and lets them go when idle, at close, at the end of the loop, and in a forked child.

    It is at home on one event loop at a time: the first that uses it, until that is closed.
    """

    def __init__(
        self, store: AsyncStore, rule: Callable[[str], Quota], options: Options, clock: Callable[[], float] = steady
    ) -> None:
        self.store = GuardedStore(store, options.deadline)
        self._opened = store
        self.owns_store = False  # whether it is closed with the limiter; if the user made it, others may share it
        self.clock = clock
        self.entries: dict[str, KeyEntry] = {}
        self.closed = False
        self._rule, self._options = rule, options
        self._born = clock()  # a fork changes the instance, but not when its quotas were set
        self._inherited: object = None
        self._begin()
        _supplies.add(self)

    def own_store(self, connect_timeout: float) -> None:
        """Close the store with the limiter, for nobody else has it; to connect to it may take so many seconds."""
        self.owns_store = True
        self.store.allow(connect_timeout)

    def _begin(self) -> None:
        """Become an instance: one that the store has never heard of, at home on no loop."""
        self._instance = Keyspace(secrets.token_hex(8), self._born, self._options)
        self._ring: ClockCache[KeyEntry] = ClockCache(self._options.max_keys)
        self._rest = DormantKeys(self._options.idle_after, self._options.max_keys)
        self._sweep = DormantSweep(self._rest, self)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.thread = 0  # whose loop is ours: on a hit, this is all there is time to look at
        self._tasks: set[asyncio.Future[Any]] = set()
        self._closing: asyncio.Task[None] | None = None
        self._wrong: Exception | None = None  # what went wrong while tokens were given back at the end
        self._is_empty = False  # closed, and all that it held was returned, or is the store's to take back

    def settle_in(self) -> None:
        """Be at home on the running loop; RuntimeError while that of before is not closed."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            self.thread = 0 if self.closed else threading.get_ident()  # a loop may go on in another thread
            return
        if self._loop is not None:
            if not self._loop.is_closed():
                raise RuntimeError("this limiter is in use on another event loop; make one limiter for each loop")
            for entry in self.entries.values():
                entry.die()
            self._let_go(self.entries.values())
            self.store.renew()
            if self.owns_store:
                self._opened.renew()
        self._loop, self.thread = loop, 0 if self.closed else threading.get_ident()
        self.yes, self.no = Known(True, loop), Known(False, loop)
        self._timer = Timer(loop, self.clock)
        self._sweep.begin()
        self._tasks.clear()
        self._farewell: Any = self._say_farewell()  # typeshed knows nothing of ag_running
        with contextlib.suppress(StopIteration):  # up to its `yield`: it is known to the loop from here on
            self._farewell.__anext__().send(None)

    async def _say_farewell(self) -> AsyncGenerator[None, None]:
        """Return all tokens when the loop ends: asyncio.run finishes every generator that was left before its end."""
        try:
            yield
        finally:
            if self._closing is not None and not self._is_empty:
                await asyncio.wait([self._closing])
            if not self._is_empty:
                await self._drain(list(self.entries.values()))
                await self._give_up()
                await self.store.stop()
                if self.owns_store:
                    await self._opened.disconnect()

    async def _give_up(self) -> None:
        """Leave nothing under way to a loop that ends: the store had its time."""
        left = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def entry(self, key: str) -> KeyEntry:
        """Return the key's live key entry, making it if need be; LimiterClosed after close()."""
        quota = self._rule(check_key(key))
        self.check_open()
        name = stored(key)
        place = place_of(name)
        if (entry := self.entries.get(place)) is not None and not entry.reservoir.is_retired:
            return entry
        entry = KeyEntry(name, self._instance.reservoir(key, quota, self.clock(), self._rest.take(place)), self)
        self._rest.make_room(self.keys + 1 - self._options.max_keys)
        self._ring.enter(entry, self._evict)
        self.entries[place] = entry
        entry.plan()
        return entry

    @property
    def keys(self) -> int:
        """How many keys are in memory, those at rest among them."""
        return len(self.entries) + len(self._rest)

    def check_open(self) -> None:
        """Raise LimiterClosed after close()."""
        if self.closed:
            raise LimiterClosed(_CLOSED)

    def watch(self, thing: Due) -> None:
        """See Timer.watch. Nobody comes on a loop that is closed: who misses there settles in on another one."""
        if self._loop is not None and not self._loop.is_closed():
            self._timer.watch(thing)

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run this in a task of the limiter's own, that no caller cancels, nor lends what it has in its context."""
        assert self._loop is not None
        try:
            task = self._loop.create_task(work, name="batchlimit", context=Context())
        except BaseException:  # a task factory of the user's own
            work.close()
            raise
        self.follow(task)
        return task

    def follow(self, work: "asyncio.Future[Any]") -> None:
        """Know of work that is under way, until it is done: a loop itself keeps no task alive."""
        self._tasks.add(work)
        work.add_done_callback(self._tasks.discard)

    def _evict(self, entry: KeyEntry) -> bool:
        if not entry.evict():
            return False
        self._let_go([entry])
        return True

    def drop(self, entry: KeyEntry) -> None:
        """Let go of a key entry that has retired."""
        self._let_go([entry])

    def _let_go(self, slots: Iterable[KeyEntry]) -> None:
        for entry in list(slots):
            place = place_of(entry.key)
            if self.entries.get(place) is entry:
                del self.entries[place]
                self._ring.leave(entry)
                self._instance.remember(entry.reservoir.figures())
                if (snapshot := entry.reservoir.snapshot) is not None:
                    self._rest.put(place, snapshot, self.clock())
                    self._sweep.plan()

    def statistics(self) -> Statistics:
        """Return what all key entries did, those that were dropped among them."""
        live = [entry.reservoir for entry in self.entries.values() if not entry.reservoir.is_retired]
        return self._instance.statistics(
            [reservoir.figures() for reservoir in live], len(self._rest), self.store.health
        )

    async def close(self) -> None:
        """Fail whoever waits, give all tokens back, close a store of our own. A second call waits for the first.

        Raises, when all that could be done is done, what went wrong at the first of the keys that something did at.
        """
        self.settle_in()
        await asyncio.shield(self._begin_to_close())

    def _begin_to_close(self) -> "asyncio.Task[None]":
        if self._closing is None or self._closing.cancelled():
            self.closed, self.thread = True, 0  # not even a hit is admitted
            for entry in list(self.entries.values()):
                entry.close(LimiterClosed(_CLOSED))
            self._closing = self.start(self._close())
        return self._closing

    async def _close(self) -> None:
        slots = list(self.entries.values())
        try:
            await self._drain(slots)
        finally:
            self._let_go(slots)
            self._rest.clear()
            self._timer.stop()
            await self.store.stop()
            if self.owns_store:
                await self._opened.aclose()
        self._is_empty = True
        if not self._farewell.ag_running:  # else it is what waits for us
            await self._farewell.aclose()
        if self._wrong is not None:
            raise self._wrong

    def abandon(self) -> None:
        """Close from wherever the last reference was dropped, which may be another thread."""
        if self._loop is None or self.closed:
            return
        with contextlib.suppress(RuntimeError):  # a loop that is closed: what was leased expires
            self._loop.call_soon_threadsafe(self._begin_to_close)

    async def _drain(self, slots: list[KeyEntry]) -> None:
        """Return all tokens, as far as that can be done in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._await_answers()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._empty(slots)

    async def _await_answers(self) -> None:
        """Wait until nothing is under way that could bring tokens."""
        mine = (asyncio.current_task(), self._closing)
        while under_way := [task for task in self._tasks if task not in mine]:
            await asyncio.wait(under_way)
            await asyncio.sleep(0)  # their callbacks run first

    async def _empty(self, slots: list[KeyEntry]) -> None:
        """Return the tokens of all of them; what goes wrong at one is no reason to keep the others'."""
        for first in range(0, len(slots), _AT_ONCE):
            some = slots[first : first + _AT_ONCE]
            outcomes = await asyncio.gather(*(entry.empty() for entry in some), return_exceptions=True)
            for entry, outcome in zip(some, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    _logger.error(
                        "tokens of %s were not given back; the others are", shown(entry.key), exc_info=outcome
                    )
                    self._wrong = self._wrong or outcome

    def after_fork(self) -> None:
        """In the child: what the parent leased is the parent's, and so is its loop.

        Nothing of it is let go of: a destructor would write into the pipe that wakes the parent.
        """
        for entry in self.entries.values():
            entry.tokens.disown()  # an AsyncBucket may still know it
        self._inherited = (self._inherited, dict(self.__dict__), dict(self.entries))
        self.entries.clear()
        self._begin()
        self.store.after_fork()


_supplies: weakref.WeakSet[Registry] = weakref.WeakSet()
"""Every supply that lives: a fork concerns them all, and tells nobody else."""


def _after_fork() -> None:
    for registry in list(_supplies):
        registry.after_fork()


os.register_at_fork(after_in_child=_after_fork)
