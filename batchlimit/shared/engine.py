"""The slots of all keys of one limiter instance, as callers use them."""

import math
from collections.abc import Callable
from functools import partial
from os import getpid
from typing import Any, TypeVar

from batchlimit.base import forks
from batchlimit.base.blocking import not_reentered
from batchlimit.base.forks import Forkables
from batchlimit.base.steps import Steps
from batchlimit.base.waking import ThreadWakeup
from batchlimit.concurrency.waits import TaskWakeup
from batchlimit.errors import ConcurrencyLimited, LimiterClosed
from batchlimit.quota.failure_policy import FailurePolicy
from batchlimit.quota.key import check_key
from batchlimit.shared.held_slots import Claim, SlotWaiter
from batchlimit.shared.local_slots import LocalSlots, Shared, forget, refusal
from batchlimit.shared.permit import BaseSharedPermit
from batchlimit.shared.renewer import CLOSED, LeaseRenewer
from batchlimit.sync.guarded_store import GuardedStore

W = TypeVar("W", ThreadWakeup, TaskWakeup)


class Engine:
    """Hands out places to callers of any thread or event loop, and blocks none of them but for its lock."""

    def __init__(
        self,
        store: GuardedStore,
        lender: Any,
        limit_of: Callable[[str], Shared],
        *,
        policy_of: Callable[[str], FailurePolicy],
        weight: int,
        clock: Callable[[], int],
    ) -> None:
        self.store, self._limit_of, self._weight, self.clock = store, limit_of, weight, clock
        self._new_renewer = partial(LeaseRenewer, store, lender, policy_of, clock)
        self.renewer = self._new_renewer()
        self.holdings = self.renewer.holdings
        self._inherited: object = None
        live_engines.add(self)

    def enter(
        self, permit: BaseSharedPermit, timeout: float, priority: int, turn: type[W]
    ) -> tuple[SlotWaiter, W, float] | None:
        """Let a permit have a free place; else return the waiter, what it waits for, and how long (s); or raise."""
        if getpid() != forks.process:
            forks.begin_anew()
        holdings = self.holdings
        with not_reentered(holdings.lock):
            if self.renewer.is_closed:
                raise LimiterClosed(CLOSED)
            if (slots := holdings.by_key.get(permit.key)) is None:
                shared = self._limit_of(check_key(permit.key))
                slots = LocalSlots(permit.key, shared, self.renewer.new_name, self._weight)
                self.renewer.start()
                holdings.add(slots)
            now, claim = self.clock(), Claim(permit, self.renewer.gone)
            claim.key = permit.key
            permit._place = slots.enter(now, claim)
            if permit._place is not None:
                return None
            seconds, displaced = slots.line.queue.patience(timeout), list[SlotWaiter]()
            if seconds > 0 and slots.line.is_full:
                if (last := slots.line.displaced_by(priority)) is None:
                    raise self._refusal(slots, "queue_full")
                displaced = slots.line.refuse([last], refusal(slots, "queue_full"))
            if seconds <= 0 and slots.is_in_vain:
                raise self._refusal(slots, "limit")
            made = turn()
            waiter = SlotWaiter(made.wake, seconds > 0, priority, claim)
            slots.line_up(waiter, now)
            holdings.note(slots, now)
        if displaced:
            holdings.wake_all(slots, displaced)
        return waiter, made, seconds or math.inf

    def waiting(self, permit: BaseSharedPermit, waiter: SlotWaiter, turn: W, seconds: float) -> Steps[None]:
        """Wait, as a thread or a task does; then let the permit have what the waiter got, or raise why it got none."""
        try:
            yield turn.wait(seconds)
        except BaseException:
            self.holdings.change(permit.key, lambda slots, now: slots.give_up(waiter, now))
            raise
        permit._place = waiter.place  # final, for nobody but this caller gives it up
        if waiter.place is not None:
            return
        holdings = self.holdings
        with holdings.lock:
            slots = holdings.by_key.get(permit.key)
            if slots is not None and waiter in slots.line:
                slots.give_up(waiter, self.clock())
                holdings.note(slots, self.clock())
                raise slots.error or self._refusal(slots, "queue_timeout")
            if waiter.error is not None:
                holdings.refused += isinstance(waiter.error, ConcurrencyLimited)
                raise waiter.error
            if waiter.place is None:  # in a forked child
                raise LimiterClosed("the process was forked while this caller waited")
            permit._place = waiter.place

    def after_fork(self) -> None:
        """Hold nothing in a forked child: all places and waiters are those of the parent."""
        parents = self.renewer
        for slots in parents.holdings:
            forget(slots)
        self._inherited = self._inherited, parents  # kept for ever: its destructors may take locks of the parent
        self.store.after_fork()
        self.renewer = self._new_renewer()
        self.holdings = self.renewer.holdings
        self.renewer.owned, self.renewer.is_closed = parents.owned, parents.is_closed

    def _refusal(self, slots: LocalSlots, reason: str) -> ConcurrencyLimited:
        self.holdings.refused += 1
        return refusal(slots, reason)


live_engines: Forkables[Engine] = Forkables()
