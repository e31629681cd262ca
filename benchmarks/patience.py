"""What waiting for a permit costs, the more wait: processor time a waiter, and the longest stop of the loop."""

import argparse
import asyncio
import gc
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

# Run as a file, Python looks beside it; what it needs lies in the checkout around it.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimited, ConcurrencyLimiter, LimiterClosed, Queue
from batchlimit.concurrency.laws import Settable
from benchmarks.figures import Figure, report

TASKS = 100_000
THREADS = 1_000
"""More of them say little about us: what the system takes for a thread hides it."""
_ARRIVE = 100
"""Tasks that begin in one turn of the loop: how many at once is the program's own doing."""
_PATIENCE = 1.0
_STOP_MS = 20.0
_PER_WAITER_US = 100.0

Tasks = list["asyncio.Task[None]"]
Ending = Callable[[AsyncConcurrencyLimiter, Settable, Tasks], Awaitable[None]]


class Stops:
    """The longest time between two turns of the loop: of this thread's processor, for others may have the machine."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def watch(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest = max(self.longest, now - last)
            last = now


async def _call(limiter: AsyncConcurrencyLimiter, timeout: float | None) -> None:
    with suppress(ConcurrencyLimited, LimiterClosed):
        async with limiter.acquire(timeout=timeout):
            await asyncio.sleep(0)


@asynccontextmanager
async def _waiting(limiter: AsyncConcurrencyLimiter, timeout: float | None) -> AsyncIterator[Tasks]:
    """Have so many tasks wait; then wait for all of them to end."""
    tasks = []
    for _ in range(TASKS // _ARRIVE):
        tasks += [asyncio.create_task(_call(limiter, timeout)) for _ in range(_ARRIVE)]
        await asyncio.sleep(0)
    yield tasks
    for number, task in enumerate(tasks):
        if number % _ARRIVE == 0:
            await asyncio.sleep(0)  # who awaits what is done stops the loop itself
        with suppress(asyncio.CancelledError):
            await task


async def _raise_limit(_: AsyncConcurrencyLimiter, law: Settable, tasks: Tasks) -> None:
    law.set_limit(len(tasks))


async def _leave(_: AsyncConcurrencyLimiter, law: Settable, _tasks: Tasks) -> None:
    law.set_limit(2)


async def _cancel(_: AsyncConcurrencyLimiter, _law: Settable, tasks: Tasks) -> None:
    for number, task in enumerate(tasks):
        task.cancel()
        if number % _ARRIVE == 0:
            await asyncio.sleep(0)


async def _time_out(_: AsyncConcurrencyLimiter, _law: Settable, _tasks: Tasks) -> None:
    pass


async def _close(limiter: AsyncConcurrencyLimiter, _law: Settable, _tasks: Tasks) -> None:
    await limiter.close()


ENDINGS: dict[str, tuple[Ending, float | None]] = {
    "the limit is raised above all of them": (_raise_limit, None),
    "the same, with a timeout of 60 s": (_raise_limit, 60.0),
    "two at a time leave": (_leave, None),
    "all are cancelled": (_cancel, 60.0),
    f"all time out after {_PATIENCE:g} s": (_time_out, _PATIENCE),
    "the limiter is closed": (_close, None),
}


def tasks() -> Iterator[Figure]:
    """Tasks of one loop that wait, and how their waits end."""
    for name, (ending, timeout) in ENDINGS.items():
        gc.collect()
        processor, stop = asyncio.run(_tasks(ending, timeout))
        note = f"{TASKS:,} tasks; {name}"
        yield Figure("asyncio: processor time a waiter", processor * 1e6, "us", at_most=_PER_WAITER_US, note=note)
        yield Figure("asyncio: longest stop of the loop", stop * 1e3, "ms", at_most=_STOP_MS, note=note)


async def _tasks(ending: Ending, timeout: float | None) -> tuple[float, float]:
    law, stops = Settable(1), Stops()
    limiter = AsyncConcurrencyLimiter(law, queue=Queue(TASKS, max_wait=None))
    holder = await limiter.acquire()
    watch = asyncio.create_task(stops.watch())
    begin = time.process_time()
    async with _waiting(limiter, timeout) as waiting:
        await ending(limiter, law, waiting)
    used = time.process_time() - begin
    holder.success()
    watch.cancel()
    return used / TASKS, stops.longest


def threads() -> Iterator[Figure]:
    """Threads that wait until the limit is raised, and how long that takes whoever raises it."""
    law = Settable(1)
    limiter = ConcurrencyLimiter(law, queue=Queue(THREADS, max_wait=None))
    holder = limiter.acquire()

    def call() -> None:
        with limiter.acquire(timeout=60.0):
            pass

    crowd = [threading.Thread(target=call) for _ in range(THREADS)]
    begin = time.process_time()
    for thread in crowd:
        thread.start()
    while limiter.statistics().waiting < THREADS:
        time.sleep(0.001)
    raising = time.thread_time()
    law.set_limit(THREADS + 1)
    raised = time.thread_time() - raising
    for thread in crowd:
        thread.join()
    used = time.process_time() - begin
    holder.success()
    note = f"{THREADS:,} threads; the limit is raised above all of them"
    yield Figure("threads: processor time a waiter", used / THREADS * 1e6, "us", note=f"{note}; with its thread")
    yield Figure("threads: to raise the limit", raised * 1e3, "ms", at_most=_STOP_MS, note=note)


PARTS: dict[str, Callable[[], Iterator[Figure]]] = {"asyncio": tasks, "threads": threads}


def main() -> None:
    """Print one figure a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--json", action="store_true", help="print one document instead of lines")
    args = parser.parse_args()
    # Else the collector, which goes through every task that waits, makes the longest stops: Python's own, not ours.
    gc.disable()
    figures = (figure for part in ([args.only] if args.only else PARTS) for figure in PARTS[part]())
    report(figures, as_document=args.json)


if __name__ == "__main__":
    main()
