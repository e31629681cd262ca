"""Callers of two priorities share a rate: how long the urgent wait, and what is left for the others.

    python -m benchmarks.priorities [--seconds 30] [--real 10] [--json]

Interactive callers have priority 10 and come at random at .3 of the rate, and then at twice the rate. Batch has
priority 1, comes at ten times the rate, and each of its calls waits for at most two seconds. First in virtual time,
with the real rules of reservoir and bucket: one instance, and eight in three layouts. Then `--real` seconds each in
four real processes on a real Valkey, of threads and of tasks; there a hundred batch callers come back as soon as they
are served. Exit status 1 if a target is missed: the 99th percentile of the interactive waits is above 2 / rate and one
lease, or batch gets less than nine tenths of its floor, a part in eleven. Beside each simulated wait stands the one of
the ideal: one queue before the whole rate, which knows all callers at once. A fleet waits less where tokens are leased.
"""

import argparse
import asyncio
import multiprocessing
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import product
from multiprocessing.connection import Connection
from random import Random
from typing import NamedTuple

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.bucket.fair_share import bands_of, lease_of
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.wait_queue import WaitQueue
from batchlimit.reservoir.waiter import Admit, Waiter
from batchlimit.stores.embedded import EmbeddedStore
from benchmarks.figures import Figure, report
from tests.simulation.agenda import SECOND, Agenda
from tests.simulation.fleet import at_random
from tests.simulation.instance import Witness
from tests.simulation.limiter import Limiter
from tests.simulation.network import Post, undisturbed
from tests.simulation.server import Server

URGENT = 10
_FLOOR = 1 / (URGENT + 1)
_BATCH, _PATIENCE = 10.0, 2.0
_SETTLES = 3.0
"""Seconds that are not looked at."""
LAYOUTS = {
    "one instance": ("both",),
    "eight, of both": ("both",) * 8,
    "eight, one urgent": ("interactive", *("batch",) * 7),
    "eight, half urgent": ("interactive", "batch") * 4,
}
"""Mixtures: the callers that each instance has."""
_QUOTAS = "100/s burst 100", "100/s burst 20", "10/s burst 10"
_LOADS = 0.3, 2.0
_PROCESSES, _CROWD = 4, 25


class Served(NamedTuple):
    """What became of a run: the waits of interactive callers (s), and tokens that either kind got each second."""

    waits: list[float]
    interactive: float
    batch: float

    def p99(self) -> float:
        """The 99th percentile of the waits, in seconds."""
        return sorted(self.waits)[int(0.99 * len(self.waits))] if self.waits else 0.0


def bound(quota: Quota) -> float:
    """Return how long an interactive caller is to wait at most (s), in 99 of 100 cases."""
    return 2 / quota.rate + lease_of(bands_of(quota)) / SECOND


def calls_of(layout: Sequence[str], place: int, rate: float, load: float) -> Iterator[tuple[int, float]]:
    """Yield priority and rate (1/s) of those that call at one instance; `load` is that of all interactive callers."""
    for kind, priority, offered in (("interactive", URGENT, load * rate), ("batch", 1, _BATCH * rate)):
        of_kind = [each in (kind, "both") for each in layout]
        if of_kind[place]:
            yield priority, offered / sum(of_kind)


def simulated(quota: Quota, layout: Sequence[str], load: float, seconds: float, urgent: int = URGENT) -> Served:
    """Have a fleet of this layout run in virtual time; `urgent` is the priority of interactive callers."""
    agenda, waits, served = Agenda(), list[float](), {URGENT: 0, 1: 0}
    server, post = Server(agenda), Post(agenda, undisturbed(0.001), timeout=1.0)

    def call(limiter: Limiter, priority: int) -> None:
        came = agenda.now / SECOND

        def then(admitted: bool) -> None:
            served[priority] += admitted and agenda.now >= _SETTLES * SECOND
            if priority == URGENT and came >= _SETTLES:
                waits.append(agenda.now / SECOND - came if admitted else _PATIENCE)

        limiter.call(1, _PATIENCE, then, priority=urgent if priority == URGENT else 1)

    for place in range(len(layout)):
        limiter = Limiter(f"instance-{place}", quota, agenda, server, post, Witness())
        for priority, rate in calls_of(layout, place, quota.rate, load):
            for at in at_random(Random(f"{place} {priority}"))(rate, seconds):
                agenda.at(round(at * SECOND), partial(call, limiter, priority))
    agenda.run(round(seconds * SECOND))
    looked_at = seconds - _SETTLES
    return Served(waits, served[URGENT] / looked_at, served[1] / looked_at)


def ideal(quota: Quota, layout: Sequence[str], load: float, seconds: float) -> Served:
    """Have the same callers come to one queue before the whole rate."""
    calls = [
        (at, priority)
        for place in range(len(layout))
        for priority, rate in calls_of(layout, place, quota.rate, load)
        for at in at_random(Random(f"{place} {priority}"))(rate, seconds)
    ]
    queue, bell, waits, served = WaitQueue(), threading.Event(), list[float](), {URGENT: 0, 1: 0}
    level, before = float(quota.burst), 0.0
    for at, priority in [*sorted(calls), (seconds, 1)]:
        while (first := queue.leader) is not None and (ready := before + max(0.0, 1 - level) / quota.rate) <= at:
            in_time = ready <= first.deadline
            if in_time:
                level, before = level + (ready - before) * quota.rate - 1, ready
            queue.dismiss(first, Admit(ready)) if in_time else queue.withdraw(first)
            came = first.deadline - _PATIENCE
            served[first.priority] += in_time and ready >= _SETTLES
            if first.priority == URGENT and came >= _SETTLES:
                waits.append(ready - came if in_time else _PATIENCE)
        level, before = min(quota.burst, level + (at - before) * quota.rate), at
        queue.join(Waiter(1, at + _PATIENCE, bell, priority=priority))
        queue.to_wake()
    return Served(waits, served[URGENT] / (seconds - _SETTLES), served[1] / (seconds - _SETTLES))


def of_threads(url: str, quota: str, seconds: float, told: Connection) -> None:
    """Be an instance whose callers are threads."""
    rate, waits, batch = Quota.parse(quota).rate, list[float](), [0]
    until = time.monotonic() + _SETTLES + seconds

    def work(limiter: RateLimiter) -> None:
        while time.monotonic() < until:
            limiter.acquire("api")
            batch[0] += until - seconds < time.monotonic() <= until  # many still wait then

    def urgent(limiter: RateLimiter) -> None:
        came = time.monotonic()
        limiter.acquire("api", priority=URGENT)
        if came > until - seconds:
            waits.append(time.monotonic() - came)

    with RateLimiter.from_url(url, quota, deadline=1.0) as limiter, ThreadPoolExecutor(64) as pool:
        crowd = [threading.Thread(target=work, args=(limiter,)) for _ in range(_CROWD)]
        for each in crowd:
            each.start()
        for at in at_random(Random(told.fileno()))(_LOADS[0] * rate / _PROCESSES, _SETTLES + seconds):
            time.sleep(max(0.0, until - _SETTLES - seconds + at - time.monotonic()))
            pool.submit(urgent, limiter)
        for each in crowd:
            each.join()
    told.send((waits, batch[0]))


def of_tasks(url: str, quota: str, seconds: float, told: Connection) -> None:
    """Be one whose callers are tasks."""
    told.send(asyncio.run(_of_tasks(url, quota, seconds, told.fileno())))


async def _of_tasks(url: str, quota: str, seconds: float, seed: int) -> tuple[list[float], int]:
    rate, waits, batch = Quota.parse(quota).rate, list[float](), 0
    until = time.monotonic() + _SETTLES + seconds

    async def work() -> None:
        nonlocal batch
        while time.monotonic() < until:
            await limiter.acquire("api")
            batch += until - seconds < time.monotonic() <= until

    async def urgent() -> None:
        came = time.monotonic()
        await limiter.acquire("api", priority=URGENT)
        if came > until - seconds:
            waits.append(time.monotonic() - came)

    async with AsyncRateLimiter.from_url(url, quota, deadline=1.0) as limiter, asyncio.TaskGroup() as group:
        for _ in range(_CROWD):
            group.create_task(work())
        for at in at_random(Random(seed))(_LOADS[0] * rate / _PROCESSES, _SETTLES + seconds):
            await asyncio.sleep(until - _SETTLES - seconds + at - time.monotonic())
            group.create_task(urgent())
    return waits, batch


def real(kind: str, quota: str, seconds: float) -> Served:
    """Have four real processes share a rate."""
    context = multiprocessing.get_context("spawn")
    with closing(EmbeddedStore()) as store:
        pipes = [context.Pipe() for _ in range(_PROCESSES)]
        target = of_threads if kind == "threads" else of_tasks
        children = [context.Process(target=target, args=(store.url, quota, seconds, theirs)) for _, theirs in pipes]
        for each in children:
            each.start()
        told: list[tuple[list[float], int]] = [ours.recv() for ours, _ in pipes]
        for each in children:
            each.join()
    waits = [wait for each, _ in told for wait in each]
    return Served(waits, len(waits) / seconds, sum(batch for _, batch in told) / seconds)


def figures(quotas: Sequence[str], seconds: float, real_seconds: float) -> Iterator[Figure]:
    """Yield what each run comes to."""
    for text, (name, layout), load in product(quotas, LAYOUTS.items(), _LOADS):
        run = Quota.parse(text), layout, load, seconds
        least = f"ideal {1000 * ideal(*run).p99():.0f} ms"
        yield from _told(f"{text}, {name}", run[0], load, simulated(*run), least)
    for text, kind in product(quotas, ("threads", "tasks")) if real_seconds else ():
        yield from _told(f"{text}, real {kind}", Quota.parse(text), _LOADS[0], real(kind, text, real_seconds))


def _told(name: str, quota: Quota, load: float, served: Served, note: str = "") -> Iterator[Figure]:
    """Above the rate it is the floor that counts, and below it the waits too."""
    if load < 1.0:
        yield Figure(f"{name}: urgent waits, p99", 1000 * served.p99(), "ms", at_most=1000 * bound(quota), note=note)
    yield Figure(f"{name}, urgent at {load:g}: batch gets", served.batch / quota.rate, at_least=0.9 * _FLOOR)


def main() -> int:
    """Measure, and print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each simulated run (default 30)")
    parser.add_argument("--real", type=float, default=10.0, help="of each run in real processes; 0: none (default 10)")
    parser.add_argument("--quotas", nargs="+", default=_QUOTAS, help="of the key, one run of each")
    parser.add_argument("--json", action="store_true", help="one document")
    chosen = parser.parse_args()
    found = report(figures(chosen.quotas, chosen.seconds, chosen.real), as_document=chosen.json)
    return int(any(each.verdict == "short" for each in found))


if __name__ == "__main__":
    sys.exit(main())
