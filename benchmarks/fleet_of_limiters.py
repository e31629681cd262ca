"""Real processes before one backend of 10 slots of 50 ms: each has a concurrency limiter of its own.

    python -m benchmarks.fleet_of_limiters [--processes 1,2,4,8] [--loads 2,3] [--seconds 60] [--threads]
    python -m benchmarks.fleet_of_limiters --servers [--kinds FastAPI,grpc.aio] [--loads 0.5,0.9,2,3] [--seconds 60]

Callers come at random whether or not others were served, wait up to 500 ms at their limiter, and want the answer within
1 s. Prints the answers in time of each 20 s, by when the caller came, over what the slots can serve; the sum of limits
at the end; and the poorest process over the richest. Exit status 1 if a stretch after the first 20 s is below 0.93.

With `--servers` the processes are servers of FastAPI and gRPC, on asyncio and with threads, before slots of 100 ms.
Nobody waits at a limiter. Three fleets are under the same calls at the same time, each before slots of its own: one by
our default law, one by the limit that the server comes with, one by a semaphore. The last two have two calls for each
slot, divided by the processes and rounded up. Prints who was refused from the first call on, and the answers in time
after the first 20 s over what the slots can serve of what came. Exit status 1 if our law refuses a call at half of the
load, or answers less than 0.95 at 2x and more.
"""

import argparse
import asyncio
import multiprocessing
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from random import Random

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimited, ConcurrencyLimiter, Queue
from batchlimit.concurrency.law import Law
from batchlimit.laws import Fixed
from benchmarks.child import served
from benchmarks.markdown import table
from benchmarks.server_contest import KINDS, contest
from benchmarks.slots import SERVICE, SLOTS, Slots, backend

_DEADLINE, _SLICE = 1.0, 20
_QUEUE = Queue(100, max_wait=0.5)
_THREADS = 200
_LEAST = 0.93


@dataclass(frozen=True, slots=True)
class Load:
    """The task of one process: callers per second, for so long, to this port."""

    port: int
    rate: float
    seconds: float
    seed: int
    fixed: int
    """The limit; 0: that of the default law."""

    def law(self) -> Law | None:
        return Fixed(self.fixed) if self.fixed else None


Told = tuple[Counter[int], int]
"""Answers in time by 20 s, and the limit at the end."""


def tasks(load: Load, told: Connection) -> None:
    """Be the callers of one process, in one event loop."""
    told.send(asyncio.run(_tasks(load)))


async def _tasks(load: Load) -> Told:
    async with AsyncConcurrencyLimiter(load.law(), queue=_QUEUE) as limiter:
        slots = Slots(load.port)

        async def call() -> bool:
            with suppress(ConcurrencyLimited):
                async with limiter.acquire():
                    await slots.take()
                return True
            return False

        return await _offer(load, call), limiter.limit


async def _offer(load: Load, call: Callable[[], Awaitable[bool]]) -> Counter[int]:
    """Call at random; count the answers in time, by when the caller came. A call that is refused returns False."""
    in_time: Counter[int] = Counter()
    random, start = Random(load.seed), time.monotonic()

    async def timed(came: float) -> None:
        if await call():
            in_time[int((came - start) / _SLICE)] += time.monotonic() - came <= _DEADLINE

    came = start
    async with asyncio.TaskGroup() as group:
        while (came := came + random.expovariate(load.rate)) < start + load.seconds:
            await asyncio.sleep(came - time.monotonic())
            group.create_task(timed(came))
    return in_time


def threads(load: Load, told: Connection) -> None:
    """Be the callers of one process, each in a thread."""
    told.send(_Threads(load).run())


class _Threads:
    def __init__(self, load: Load) -> None:
        self._load, self._random = load, Random(load.seed)
        self._own = threading.local()
        self._lock = threading.Lock()
        self._in_time: Counter[int] = Counter()

    def run(self) -> Told:
        start = came = time.monotonic()
        with ConcurrencyLimiter(self._load.law(), queue=_QUEUE) as limiter, ThreadPoolExecutor(_THREADS) as pool:
            while (came := came + self._random.expovariate(self._load.rate)) < start + self._load.seconds:
                time.sleep(max(0.0, came - time.monotonic()))
                pool.submit(self._call, limiter, came, int((came - start) / _SLICE))
            limit = limiter.limit
        return self._in_time, limit

    def _call(self, limiter: ConcurrencyLimiter, came: float, part: int) -> None:
        try:
            with limiter.acquire():
                if not hasattr(self._own, "socket"):
                    self._own.socket = socket.create_connection(("127.0.0.1", self._load.port))
                self._own.socket.sendall(b"?")
                self._own.socket.recv(1)
        except ConcurrencyLimited:
            return
        with self._lock:
            self._in_time[part] += time.monotonic() - came <= _DEADLINE


def measure(
    processes: int, times: float, seconds: float, crew: Callable[[Load, Connection], None], fixed: int
) -> tuple[list[float], int, float]:
    """Run so many processes: answers in time over capacity, each 20 s; the sum of limits; poorest over richest."""
    context = multiprocessing.get_context("spawn")
    rate = times * SLOTS / SERVICE / processes
    with served(backend, SERVICE) as (port, _):
        loads = [Load(int(port), rate, seconds, seed, fixed) for seed in range(processes)]
        pipes = [context.Pipe() for _ in loads]
        started = [context.Process(target=crew, args=(load, pipe[1])) for load, pipe in zip(loads, pipes, strict=True)]
        for each in started:
            each.start()
        told: list[Told] = [pipe[0].recv() for pipe in pipes]
        for each in started:
            each.join()
    slices = [sum(in_time[part] for in_time, _ in told) for part in range(int(seconds / _SLICE))]
    answered = [sum(in_time.values()) for in_time, _ in told]
    shares = [each * SERVICE / SLOTS / _SLICE for each in slices]
    return shares, sum(limit for _, limit in told), min(answered) / max(1, *answered)


def main() -> int:
    """Measure, and print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", default="1,2,4,8", help="how many, one run each")
    parser.add_argument("--loads", help="times what the slots can serve; by default 2,3, of servers 0.5,0.9,2,3")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run; multiples of 20")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--threads", action="store_true", help="callers are threads, not tasks")
    kinds.add_argument("--servers", action="store_true", help="each process is a server")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of servers")
    parser.add_argument("--fixed", type=int, default=0, help="a limit that stays, to see what the machine gives")
    chosen = parser.parse_args()
    processes = [int(each) for each in chosen.processes.split(",")]
    loads = [float(each) for each in (chosen.loads or ("0.5,0.9,2,3" if chosen.servers else "2,3")).split(",")]
    if chosen.servers:
        return int(not contest(processes, loads, chosen.seconds, chosen.kinds.split(",")))
    rows = list(_rows(chosen, processes, loads, chosen.seconds))
    print(
        table(["processes", "load", "in time, each 20 s", "sum of limits", "poorest/richest"], [row for row, _ in rows])
    )
    return int(not all(held for _, held in rows))


def _rows(
    chosen: argparse.Namespace, counts: Sequence[int], loads: Sequence[float], seconds: float
) -> Iterator[tuple[list[str], bool]]:
    crew = threads if chosen.threads else tasks
    for processes in counts:
        for load in loads:
            shares, limits, fairness = measure(processes, load, seconds, crew, chosen.fixed)
            shown = " ".join(f"{share:.2f}" for share in shares)
            row = [str(processes), f"{load:g}x", shown, str(limits), f"{fairness:.2f}"]
            print(*row, flush=True, file=sys.stderr)
            yield row, all(share >= _LEAST for share in shares[1:])


if __name__ == "__main__":
    sys.exit(main())
