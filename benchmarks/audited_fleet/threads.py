"""Runs the callers of a process as threads."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import closing

from benchmarks.audited_fleet.caller import Caller, Stint
from benchmarks.audited_fleet.instance import PUBLISHING, Instance, InstanceLog
from benchmarks.audited_fleet.limiter import Limiter


def run(instance: Instance) -> InstanceLog:
    """Make the limiter, run the callers, and close the limiter."""
    with closing(instance.plan.limiter(instance.plan)) as limiter:
        callers = instance.callers()
        _call_all(instance, limiter, callers)
        return instance.ended(callers, limiter.statistics().calls)


def _call_all(instance: Instance, limiter: Limiter, callers: list[Caller]) -> None:
    stop = threading.Event()
    with ThreadPoolExecutor(len(callers)) as pool:
        running = [pool.submit(_run, caller, limiter, stop) for caller in callers]
        try:
            while not instance.is_told_to_stop() and _going_on(running):
                instance.publish(callers, limiter.statistics().calls)
        finally:
            stop.set()
    for future in running:
        future.result()


def _going_on(running: list[Future[None]]) -> bool:
    """Wait a little; return whether callers still run and none has failed."""
    done, not_done = wait(running, PUBLISHING, FIRST_EXCEPTION)
    return bool(not_done) and not any(future.exception() for future in done)


def _run(caller: Caller, limiter: Limiter, stop: threading.Event) -> None:
    """Make the planned calls, as many as the machine can, until the end of the plan or `stop`."""
    for stint in caller.stints:
        time.sleep(max(0.0, stint.begin - time.monotonic()))
        _keep_up(caller, stint, limiter, stop)
    caller.ended = time.monotonic()


def _keep_up(caller: Caller, stint: Stint, limiter: Limiter, stop: threading.Event) -> None:
    while (now := time.monotonic()) < stint.end and not stop.is_set():
        if costs := caller.take_due(stint, now):
            _call(caller, costs, limiter)
        else:
            time.sleep(stint.pause(now))


def _call(caller: Caller, costs: Sequence[int], limiter: Limiter) -> None:
    clock, try_acquire, tally, key = time.monotonic, limiter.try_acquire, limiter.tally, caller.key
    admitted, refused = caller.admitted.add, caller.refused.add
    waited = tally.waited
    for cost in costs:
        before = clock()
        note = admitted if try_acquire(key, cost) else refused
        after = clock()
        waited, earlier = tally.waited, waited
        note(before, after, cost, waited - earlier)
