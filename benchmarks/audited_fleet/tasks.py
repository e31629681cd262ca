"""Runs the callers of a process as tasks of one event loop."""

import asyncio
import time
from collections.abc import Sequence

from benchmarks.audited_fleet.caller import Caller, Stint
from benchmarks.audited_fleet.instance import PUBLISHING, Instance, InstanceLog
from benchmarks.audited_fleet.limiter import AsyncLimiter


async def run(instance: Instance) -> InstanceLog:
    """Make the limiter, run the callers, and close the limiter."""
    limiter = instance.plan.async_limiter(instance.plan)
    try:
        callers = instance.callers()
        await _call_all(instance, limiter, callers)
        return instance.ended(callers, limiter.statistics().calls)
    finally:
        await limiter.close()


async def _call_all(instance: Instance, limiter: AsyncLimiter, callers: list[Caller]) -> None:
    stop = asyncio.Event()
    running = [asyncio.create_task(_run(caller, limiter, stop)) for caller in callers]
    try:
        while not instance.is_told_to_stop() and await _going_on(running):
            instance.publish(callers, limiter.statistics().calls)
    finally:
        stop.set()
        await asyncio.wait(running)
    for task in running:
        task.result()


async def _going_on(running: list[asyncio.Task[None]]) -> bool:
    """Wait a little; return whether callers still run and none has failed."""
    done, pending = await asyncio.wait(running, timeout=PUBLISHING, return_when=asyncio.FIRST_EXCEPTION)
    return bool(pending) and not any(task.exception() for task in done)


async def _run(caller: Caller, limiter: AsyncLimiter, stop: asyncio.Event) -> None:
    """Make the planned calls, as many as the machine can, until the end of the plan or `stop`."""
    for stint in caller.stints:
        await asyncio.sleep(stint.begin - time.monotonic())
        await _keep_up(caller, stint, limiter, stop)
    caller.ended = time.monotonic()


async def _keep_up(caller: Caller, stint: Stint, limiter: AsyncLimiter, stop: asyncio.Event) -> None:
    while (now := time.monotonic()) < stint.end and not stop.is_set():
        if costs := caller.take_due(stint, now):
            await _call(caller, costs, limiter)
            await asyncio.sleep(0)  # a hit never suspends: without this a late caller would keep the event loop busy
        else:
            await asyncio.sleep(stint.pause(now))


async def _call(caller: Caller, costs: Sequence[int], limiter: AsyncLimiter) -> None:
    clock, try_acquire, tally, key = time.monotonic, limiter.try_acquire, limiter.tally, caller.key
    admitted, refused = caller.admitted.add, caller.refused.add
    waited = tally.waited
    for cost in costs:
        before = clock()
        note = admitted if await try_acquire(key, cost) else refused
        after = clock()
        waited, earlier = tally.waited, waited
        note(before, after, cost, waited - earlier)
