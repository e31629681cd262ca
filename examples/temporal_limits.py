"""Activities of Temporal of which so many run at once in the whole fleet, with Redis at REDIS_URL."""

import asyncio
import os

from temporalio.worker import (
    CustomSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
)

from batchlimit import ConcurrencyLimited, StoreUnavailable
from batchlimit.shared import AsyncSharedConcurrencyLimiter
from batchlimit.shared.permit import AsyncSharedPermit

STORE = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
PAUSE_S = 1.0
"""Until a slot is asked for again, where there was none or the store is away."""


class FleetSlot(SlotPermit):
    """A slot, with its permit."""

    def __init__(self, held: AsyncSharedPermit) -> None:
        self.held = held


class FleetSlots(CustomSlotSupplier):
    """Slots of a key, such as `activity_supplier=FleetSlots("exports", 10)` of `WorkerTuner.create_composite`.

    A worker reserves a slot before it polls. So each poller that waits for work holds one: give workers
    `max_concurrent_activity_task_polls=1`, and the fleet more slots than it has workers.
    """

    def __init__(self, key: str, most: int) -> None:
        self._key = key
        self._limiter = AsyncSharedConcurrencyLimiter.from_url(STORE, {key: most})

    async def reserve_slot(self, ctx: SlotReserveContext) -> FleetSlot:
        """Wait for a slot; nothing but a cancellation may be raised here."""
        while True:
            try:
                return FleetSlot(await self._limiter.acquire(self._key))
            except (ConcurrencyLimited, StoreUnavailable):
                await asyncio.sleep(PAUSE_S)

    def try_reserve_slot(self, ctx: SlotReserveContext) -> None:
        """Reserve nothing for eager tasks: the store would have to be asked, and this must not block."""

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """Do nothing: a slot counts from its reservation on."""

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        """Give a slot back, from whatever thread."""
        assert isinstance(ctx.permit, FleetSlot)
        ctx.permit.held.release()

    async def close(self) -> None:
        """Close the limiter, after the worker."""
        await self._limiter.close()
