"""A host whose callers are the tasks of one event loop."""

import asyncio
import time
from collections.abc import Sequence

from batchlimit.fleet.caller import Caller, Stint
from batchlimit.fleet.instance import PUBLISHING, Instance, InstanceLog
from batchlimit.fleet.limiter import AsyncLimiter


async def run(host: Instance) -> InstanceLog:
    """Make the host's limiter, have its callers call it, and close it."""
    limiter = host.plan.async_limiter(host.plan)
    try:
        callers = host.callers()
        await _call_all(host, limiter, callers)
        return host.ended(callers, limiter.statistics().calls)
    finally:
        await limiter.close()


async def _call_all(host: Instance, limiter: AsyncLimiter, callers: list[Caller]) -> None:
    stop = asyncio.Event()
    running = [asyncio.create_task(_run(caller, limiter, stop)) for caller in callers]
    try:
        while not host.is_told_to_stop() and await _going_on(running):
            host.publish(callers, limiter.statistics().calls)
    finally:
        stop.set()
        await asyncio.wait(running)
    for task in running:
        task.result()


async def _going_on(running: list[asyncio.Task[None]]) -> bool:
    """Wait a little, or until it is over because all have finished or one has failed."""
    done, pending = await asyncio.wait(running, timeout=PUBLISHING, return_when=asyncio.FIRST_EXCEPTION)
    return bool(pending) and not any(task.exception() for task in done)


async def _run(caller: Caller, limiter: AsyncLimiter, stop: asyncio.Event) -> None:
    """Make all calls of the plan that the machine can carry in its time, or until told to stop."""
    for stint in caller.stints:
        await asyncio.sleep(stint.begin - time.monotonic())
        await _keep_up(caller, stint, limiter, stop)
    caller.ended = time.monotonic()


async def _keep_up(caller: Caller, stint: Stint, limiter: AsyncLimiter, stop: asyncio.Event) -> None:
    while (now := time.monotonic()) < stint.end and not stop.is_set():
        if costs := caller.take_due(stint, now):
            await _call(caller, costs, limiter)
            await asyncio.sleep(0)  # a hit suspends nobody: without this, who lags would keep the loop for itself
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
