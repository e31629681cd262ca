"""Slots of Temporal are those of the fleet. No server of Temporal is started: its worker's calls are made by hand."""

import asyncio
import threading
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from batchlimit.stores.embedded import EmbeddedStore

temporalio = pytest.importorskip("temporalio", reason="of the group 'agents'")


def _released(slots: Any, permit: Any) -> None:
    """Release a slot as the core of a worker does: from a thread of its own."""
    thread = threading.Thread(target=slots.release_slot, args=[SimpleNamespace(permit=permit)])
    thread.start()
    thread.join()


async def _until_it_waits(slots: Any) -> None:
    while not any(each.waiting for each in slots._limiter.statistics().keys.values()):  # noqa: ASYNC110  a statistic
        await asyncio.sleep(0.001)


def test_workers_share_the_slots_and_one_that_is_released_goes_to_another_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from temporalio.worker import FixedSizeSlotSupplier, WorkerTuner

    from examples import temporal_limits

    async def main() -> None:
        one, other = [temporal_limits.FleetSlots("exports", 2) for _ in range(2)]
        fixed = FixedSizeSlotSupplier(5)
        WorkerTuner.create_composite(
            workflow_supplier=fixed, activity_supplier=one, local_activity_supplier=fixed, nexus_supplier=fixed
        )._to_bridge_tuner()  # what a worker does with it
        ctx: Any = SimpleNamespace()
        assert one.try_reserve_slot(ctx) is None
        held = [await one.reserve_slot(ctx), await one.reserve_slot(ctx)]
        waiting = asyncio.create_task(other.reserve_slot(ctx))
        await _until_it_waits(other)
        _released(one, held[0])
        _released(other, await asyncio.wait_for(waiting, 20))
        _released(one, held[1])
        await one.close()
        await other.close()

    with closing(EmbeddedStore()) as store:
        monkeypatch.setattr(temporal_limits, "STORE", store.url)
        asyncio.run(main())


def test_a_reservation_that_is_cancelled_holds_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    from examples import temporal_limits

    monkeypatch.setattr(temporal_limits, "STORE", "memory://")

    async def main() -> None:
        slots, ctx = temporal_limits.FleetSlots("exports", 1), SimpleNamespace()
        held = await slots.reserve_slot(ctx)
        waiting = asyncio.create_task(slots.reserve_slot(ctx))
        await _until_it_waits(slots)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        _released(slots, held)
        _released(slots, await slots.reserve_slot(ctx))
        await slots.close()

    asyncio.run(main())


def test_while_the_store_is_away_a_reservation_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    from examples import temporal_limits

    monkeypatch.setattr(temporal_limits, "STORE", "redis://127.0.0.1:1/0")
    asked: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        if seconds == temporal_limits.PAUSE_S:
            asked.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)

    async def main() -> None:
        slots = temporal_limits.FleetSlots("exports", 1)
        waiting = asyncio.create_task(slots.reserve_slot(SimpleNamespace()))
        while not asked:  # noqa: ASYNC110  by a patch
            await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])
        await slots.close()

    asyncio.run(main())
