"""The calls of an AsyncRateLimiter that its hit path does not decide: they wait, or ask the store."""

import asyncio
from typing import Any

from batchlimit.aio import store_calls
from batchlimit.aio.key_entry import KeyEntry
from batchlimit.aio.registry import Registry
from batchlimit.base.decision import Decision
from batchlimit.base.steps import drive
from batchlimit.base.waiting import NO_WAIT, deadline
from batchlimit.errors import StoreUnavailable
from batchlimit.keyspace import asking
from batchlimit.keyspace.key_spend import Settled
from batchlimit.quota.key import check_cost, check_priority
from batchlimit.reservoir.admission import AdmissionResult
from batchlimit.reservoir.tokens import ONE


class AsyncSlowPath:
    """Decides calls at the keys of a registry. If a key entry retires while a call waits, the call begins anew."""

    def __init__(self, registry: Registry) -> None:
        self._registry, self._clock = registry, registry.clock

    async def acquire(self, key: str, cost: int, timeout: float | None, priority: int) -> None:
        """Wait until a call is admitted; RateLimited if that cannot be in time."""
        if priority is not ONE:
            check_priority(priority)
        result = await self._admit(key, cost, deadline(timeout, self._clock()), priority)
        if isinstance(result, AdmissionResult) and not result.admitted:
            raise result.refusal(key, self._clock())

    async def decide(self, key: str, cost: int) -> Decision:
        """Admit a call or not, without waiting for tokens; StoreUnavailable if the store is away."""
        return (await self._admit(key, cost, NO_WAIT)).decision(self._clock())

    async def try_acquire(self, key: str, cost: int) -> bool:
        """Admit a call or not, without waiting for tokens; False also if the store is away."""
        try:
            return (await self._admit(key, cost, NO_WAIT)).admitted
        except StoreUnavailable:
            return False

    async def spend_cold(self, costs: Any) -> dict[str, Decision] | None:
        """Charge keys in use by tokens that are here, and all others by one spend; None: other rules have to decide."""
        registry, told = self._registry, None
        registry.settle_in()  # first: the keys in use may be those of another loop
        if (charged := registry.memory.charge_hot(costs)) is None:
            return None
        try:
            told = await registry.spends.all(charged.cold)
        finally:
            settled = registry.memory.settle(charged, told, registry.refund_all)
        return settled

    async def try_at(self, entry: KeyEntry, key: str, cost: int) -> bool:
        """Do the same for a cost above 0 at a known key entry, unless it has retired, or is another loop's, by now."""
        state = entry.reservoir.state
        if state.is_retired or cost > state.largest_cost or asyncio.get_running_loop() is not self._registry.loop:
            return await self.try_acquire(key, cost)
        try:
            result = await self._admit_at(entry, cost, NO_WAIT)
        except StoreUnavailable:
            return False
        return await self.try_acquire(key, cost) if result is None else result.admitted

    async def peek(self, key: str) -> Decision:
        """Return how the next call of cost 1 would fare."""
        return await drive(asking.peek(self._registry, key))

    async def refund(self, key: str, cost: int) -> None:
        """Take back a call that was admitted; raises StoreUnavailable if it is lost and `on_failure` is "closed"."""
        entry = self._registry.entry(key)
        check_cost(cost, entry.reservoir.state.most, key)
        await store_calls.arrived(key, store_calls.refund(entry, cost))

    def adjust(self, key: str, tokens: int) -> "asyncio.Task[int | Exception] | None":
        """Charge tokens that were used already, or refund them where they are less than 0; the task that it takes."""
        self._registry.check_open()
        if tokens < 0:
            return store_calls.refund(self._registry.entry(key), -tokens)
        if tokens > 0:
            entry = self._registry.entry(key)
            entry.locked(lambda: entry.reservoir.lifecycle.debit(tokens, self._clock()))
        return None

    async def _admit(self, key: str, cost: int, until: float, priority: int = 1) -> Settled:
        """Admit or refuse a call, from memory or after waiting; raises what went wrong."""
        registry = self._registry
        while True:
            registry.settle_in()
            if (key.__class__ is not str or key not in registry.entries) and (
                spent := await registry.spends.one(key, cost, until, priority)
            ) is not None:
                return spent
            entry = registry.entry(key)
            check_cost(cost, entry.reservoir.state.most, key)
            if (
                not entry.reservoir.state.is_retired
                and (result := await self._admit_at(entry, cost, until, priority)) is not None
            ):
                return result
            registry.live_entry(key)

    async def _admit_at(self, entry: KeyEntry, cost: int, until: float, priority: int = 1) -> AdmissionResult | None:
        """Admit or refuse a call at this key entry; None: it has retired."""
        if (before := entry.take(cost)) != NO_WAIT:
            return AdmissionResult.hit(before, entry.reservoir.forecast)
        if entry.refill_gate.admits(cost):
            if (before := await self._wait_for_refill(entry, cost, until)) != NO_WAIT:
                return AdmissionResult.hit(before, entry.reservoir.forecast, waited=True)
            if entry.reservoir.state.is_retired:
                return None
        return await entry.join(cost, until, prompt=True, priority=priority).result()

    async def _wait_for_refill(self, entry: KeyEntry, cost: int, until: float) -> float:
        """Wait for tokens that come for many callers, and take some, as `take` does; NO_WAIT: join the queue."""
        patience = entry.refill_gate.patience
        last = self._clock() + patience  # no caller begins to wait later than that: in the queue each has its turn
        if until != NO_WAIT:
            last = min(last, until - patience)
        while entry.refill_gate.admits(cost) and self._clock() <= last:
            await entry.refill_gate.turn(cost)
            if entry.reservoir.state.is_retired:
                return NO_WAIT
            if (before := entry.take(cost)) != NO_WAIT:
                return before
        return NO_WAIT
