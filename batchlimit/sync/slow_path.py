"""The calls of a RateLimiter that its hit path does not decide: they lock, wait, or ask the store."""

from os import getpid
from typing import Any

from batchlimit.base import forks
from batchlimit.base.blocking import check_recursion_depth, warn_in_loop
from batchlimit.base.decision import Decision
from batchlimit.base.steps import run
from batchlimit.base.waiting import NO_WAIT, deadline
from batchlimit.errors import StoreUnavailable
from batchlimit.keyspace import asking
from batchlimit.keyspace.key_spend import Settled
from batchlimit.quota.key import check_cost, check_priority
from batchlimit.reservoir.admission import AdmissionResult
from batchlimit.reservoir.tokens import ONE
from batchlimit.sync import store_calls
from batchlimit.sync.key_entry import KeyEntry
from batchlimit.sync.registry import Registry
from batchlimit.sync.waiting_thread import WaitingCoroutine, WaitingThread


class SlowPath:
    """Decides calls at the keys of a registry. A key entry may retire at any time: the call begins anew at the next."""

    def __init__(self, registry: Registry) -> None:
        self._registry, self._clock = registry, registry.clock

    def acquire(self, key: str, cost: int, timeout: float | None, priority: int) -> None:
        """Wait until a call is admitted; RateLimited if that cannot be in time."""
        if priority is not ONE:
            check_priority(priority)
        result = self._admit(key, cost, deadline(timeout, self._clock()), priority)
        if isinstance(result, AdmissionResult) and not result.admitted:
            raise result.refusal(key, self._clock())

    async def acquire_in_loop(self, key: str, cost: int, timeout: float | None, priority: int) -> None:
        """Do the same in a coroutine, and do not block its event loop."""
        until, result = deadline(timeout, self._clock()), None
        while result is None:
            entry = self._registry.live_entry(key)
            check_cost(cost, entry.reservoir.state.most, key)
            if entry.take(cost) != NO_WAIT:
                return
            result = await WaitingCoroutine(entry, cost, until, priority).awaited()
        if not result.admitted:
            raise result.refusal(key, self._clock())

    def decide(self, key: str, cost: int) -> Decision:
        """Admit a call or not, without waiting for tokens; StoreUnavailable if the store is away."""
        return self._admit(key, cost, NO_WAIT).decision(self._clock())

    def try_acquire(self, key: str, cost: int) -> bool:
        """Admit a call or not, without waiting for tokens; False also if the store is away."""
        try:
            return self._admit(key, cost, NO_WAIT).admitted
        except StoreUnavailable:
            return False

    def spend_cold(self, costs: Any) -> dict[str, Decision] | None:
        """Charge keys in use by tokens that are here, and all others by one spend; None: other rules have to decide."""
        registry, told = self._registry, None
        if getpid() != forks.process:
            forks.begin_anew()
        if (charged := registry.memory.charge_hot(costs)) is None:
            return None
        try:
            told = registry.spends.all(charged.cold)
        finally:
            settled = registry.memory.settle(charged, told, registry.refund_all)
        return settled

    def try_at(self, entry: KeyEntry, key: str, cost: int) -> bool:
        """Do the same at a known key entry, by the first of its rules that decides."""
        is_bad = cost.__class__ is not int or not 0 < cost <= entry.reservoir.state.largest_cost
        if is_bad or getpid() != forks.process:
            return self.try_acquire(key, cost)
        if self._is_denied(entry, cost):
            return False
        if entry.tokens.available and entry.take(cost) != NO_WAIT:  # pending tokens are none: those a miss finds
            return True
        if (gate := entry.refill_gate) is None:
            return self._try_store(entry, key, cost)
        warn_in_loop()
        if not gate.acquire(timeout=entry.store.brief):
            # The store is away, or the thread inside was interrupted and never leaves.
            entry.refill_gate = None if entry.refill_gate is gate else entry.refill_gate
            return self._try_store(entry, key, cost)
        try:
            return entry.take(cost) != NO_WAIT or self._try_store(entry, key, cost)
        finally:
            gate.release()

    def peek(self, key: str) -> Decision:
        """Return how the next call of cost 1 would fare."""
        return run(asking.peek(self._registry, key))

    def refund(self, key: str, cost: int) -> None:
        """Take back a call that was admitted; raises StoreUnavailable if it is lost and `on_failure` is "closed"."""
        check_cost(cost, self._registry.entry(key).reservoir.state.most, key)
        warn_in_loop()
        self.adjust(key, -cost)

    def adjust(self, key: str, tokens: int) -> None:
        """Charge tokens that were used already, or refund them where they are less than 0."""
        while tokens < 0 and not store_calls.refund(self._registry.live_entry(key), -tokens):
            pass  # it had just retired
        while tokens > 0 and not _debit(self._registry.live_entry(key), tokens):
            pass  # it had just retired

    def _admit(self, key: str, cost: int, until: float, priority: int = 1) -> Settled:
        """Admit or refuse a call, from memory or after waiting; raises what went wrong."""
        registry = self._registry
        if getpid() != forks.process:
            forks.begin_anew()
        while True:
            is_in_use = key.__class__ is str and key in registry.entries
            if not is_in_use and (answer := registry.spends.one(key, cost, until, priority)) is not None:
                return answer
            entry = registry.live_entry(key)
            check_cost(cost, entry.reservoir.state.most, key)
            if (before := entry.take(cost)) != NO_WAIT:
                return AdmissionResult.hit(before, entry.reservoir.forecast)
            if (result := self._wait(entry, cost, until, priority)) is not None:
                return result

    def _is_denied(self, entry: KeyEntry, cost: int) -> bool:
        """Refuse from memory; a refusal that the hit path cannot see yet is published."""
        reservoir, now = entry.reservoir, self._clock()
        if not reservoir.state.is_short(now):
            return False
        if now < entry.tokens.denied_until:
            entry.tokens.refused += cost
            return True
        return reservoir.forecast.denies(cost, now) and entry.locked(
            lambda: reservoir.admission.deny(cost, self._clock())
        )

    def _try_store(self, entry: KeyEntry, key: str, cost: int) -> bool:
        """Admit by what the store grants."""
        try:
            result = self._wait(entry, cost, NO_WAIT)
        except StoreUnavailable:
            return False
        return self.try_acquire(key, cost) if result is None else result.admitted

    def _wait(self, entry: KeyEntry, cost: int, until: float, priority: int = 1) -> AdmissionResult | None:
        """Wait in the queue of a key, as first in it by asking the store; None: the key entry has retired."""
        check_recursion_depth()
        caller = WaitingThread(entry, cost, until, priority=priority)
        try:
            return caller.wait()
        except StoreUnavailable:
            caller.leave()
            raise
        except BaseException:  # a KeyboardInterrupt may come anywhere: what was begun for this caller is ended here
            entry.finish(caller.leave)
            caller.leave()
            raise


def _debit(entry: KeyEntry, tokens: int) -> bool:
    return entry.locked(lambda: entry.reservoir.lifecycle.debit(tokens, entry.clock()))
