"""What all slots of one limiter share: its name to the store, its slots, its keeper, and its end."""

import atexit
import itertools
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable

from batchlimit.core.batch import DEFAULT_SIZER, BatchSizer
from batchlimit.core.key import check_key
from batchlimit.core.quota import Quota
from batchlimit.core.reservoir import Reservoir
from batchlimit.core.terms import Fill
from batchlimit.errors import LimiterClosed
from batchlimit.stores.base import Store
from batchlimit.sync.clock import steady
from batchlimit.sync.keeper import Keeper
from batchlimit.sync.slot import Slot

_CLOSED = "this limiter was closed"
_PATIENCE = 2.0
"""How long (s) a closing limiter waits for its keeper, and for the answers that are under way."""


class Supply:
    """Makes slots, and lets them go when idle, at close, at exit, and in a forked child."""

    def __init__(
        self,
        store: Store,
        rule: Callable[[str], Quota],
        *,
        sizer: BatchSizer = DEFAULT_SIZER,
        idle_after: float = 10.0,
        fill: Fill = "share",
        weight: int = 1,
        clock: Callable[[], float] = steady,
    ) -> None:
        self.store = store
        self.clock = clock
        self.slots: dict[str, Slot] = {}
        self._rule, self._sizer, self._idle_after = rule, sizer, idle_after
        self._fill, self._weight = fill, weight
        self._born = clock()  # a fork changes the host, but not when its quotas were set
        self._begin()
        _supplies.add(self)

    def _begin(self) -> None:
        """Become a host: one that the store has never heard of, with nothing leased and nobody waiting."""
        self.closed = False
        self._host = secrets.token_hex(8)
        self._seqs = itertools.count(1)  # one for all keys, so that a key that was dropped never repeats a number
        self._past = [0, 0, 0]  # admitted, refused and calls of the slots that were dropped
        self._lock = threading.Lock()  # held to change which slots there are
        self._keeper = Keeper(self.clock, self._drop, self._drain)

    def slot(self, key: str) -> Slot:
        """Return the key's live slot, making it if need be; LimiterClosed after close()."""
        quota = self._rule(check_key(key))
        with self._lock:
            if self.closed:
                raise LimiterClosed(_CLOSED)
            slot = self.slots.get(key)
            if slot is None or slot.reservoir.retired:
                slot = self.slots[key] = self._make(key, quota)
        slot.locked(lambda: None)  # a look at it is planned
        return slot

    def _make(self, key: str, quota: Quota) -> Slot:
        reservoir = Reservoir(
            quota,
            self._host,
            self._seqs,
            self.clock(),
            sizer=self._sizer,
            fill=self._fill,
            idle_after=self._idle_after,
            born=self._born,
            weight=self._weight,
        )
        return Slot(key, reservoir, self.store, self.clock, self._keeper.watch)

    def _drop(self, slot: Slot) -> None:
        with self._lock:
            if self.slots.get(slot.key) is slot:
                del self.slots[slot.key]
            self._remember(slot)

    def _remember(self, slot: Slot) -> None:
        self._past = [past + figure for past, figure in zip(self._past, slot.figures(), strict=False)]

    def figures(self) -> tuple[int, int, int, int, int, int]:
        """Return (keys, admitted, refused, calls, held, waiting)."""
        with self._lock:
            slots, past = list(self.slots.values()), self._past[:]
        each = [slot.figures() for slot in slots if not slot.reservoir.retired]
        admitted, refused, calls, held, waiting = (sum(column) for column in zip(*each, [0] * 5, strict=True))
        return len(each), past[0] + admitted, past[1] + refused, past[2] + calls, held, waiting

    def close(self) -> None:
        """Fail whoever waits, give all tokens back, close the store. A second call has nothing to do."""
        with self._lock:
            self.closed = True
        self._keeper.stop()
        self._keeper.join(_PATIENCE)
        self._drain()

    def abandon(self) -> None:
        """Close without blocking, from wherever the last reference was dropped, even inside one of our locks."""
        self.closed = True
        if not self._keeper.stop():
            self.store.close()

    def after_fork(self) -> None:
        """In the child: what the parent leased is the parent's; spending it twice would break the promise."""
        self.slots.clear()
        closed = self.closed
        self._begin()
        self.closed = closed
        self.store.after_fork()

    def _drain(self) -> None:
        """Return all tokens; runs where the keeper ends, and again, with nothing to do, in close()."""
        with self._lock:
            slots = list(self.slots.values())
            self.slots.clear()
        deadline = time.monotonic() + _PATIENCE
        ends = [slot.close(LimiterClosed(_CLOSED)) for slot in slots]
        # Up to the first that finds the store away: it is away for all.
        all(slot.empty(ended, deadline) for slot, ended in zip(slots, ends, strict=True))
        for slot in slots:
            self._remember(slot)
        self.store.close()


_supplies: weakref.WeakSet[Supply] = weakref.WeakSet()
"""Every supply that lives: a fork and the end of the interpreter concern them all, and tell nobody else."""


def _after_fork() -> None:
    for supply in list(_supplies):
        supply.after_fork()


def _at_exit() -> None:
    for supply in list(_supplies):
        supply.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
