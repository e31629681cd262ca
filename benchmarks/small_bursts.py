"""How much of a small quota several waiting callers get: by API, store, processes, rate and burst.

    python -m benchmarks.small_bursts [--seconds S] [--rates 4,10] [--bursts 1,2] [--processes 1,4] [--keys N] [--json]

In each process four threads, or four tasks of one loop, call `acquire("k")` again and again; what they were admitted is
divided by rate x seconds, from when all are there. `memory://` is one process's own. At a burst of 1 whatever a caller
is late is lost, by the promise itself. So two floors stand beside it, of a thread or a task without a limiter. One
only sleeps for 1 / rate, again and again. The other sends a PING first, and sleeps for what is left of 1 / rate when it
has its answer: as a limiter must. With `--keys N` one process waits at so many keys of 1/s burst 1 instead, with two
callers each, and the slowest key's share is told as well.
"""

import argparse
import asyncio
import multiprocessing
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import product
from multiprocessing.connection import Connection
from typing import NamedTuple

from batchlimit import AsyncRateLimiter, LimiterClosed, RateLimiter
from batchlimit.stores.embedded import EmbeddedStore
from benchmarks.figures import Figure, report

_CALLERS = 4
_SOCKET = "unix://"
_PING = b"PING\r\n"
_GOAL = 97.0
_SETTLED = 0.5
"""Seconds for which all call before anything is counted."""
_DEADLINE = 2.0
"""Seconds that a call of the store may take: what a busy machine does to a default of 0.05 is not looked for here."""


class Crew(NamedTuple):
    """The callers of one process: so many at each key, from `begin` to `end` (monotonic, of all processes)."""

    url: str
    prefix: str
    quota: str
    keys: int
    callers: int
    begin: float
    end: float


Counts = list[int]
"""Admissions by key."""


def threads(crew: Crew) -> Counts:
    """Call from threads."""
    counts = [0] * crew.keys
    lock = threading.Lock()
    limiter = RateLimiter.from_url(crew.url, crew.quota, prefix=crew.prefix, deadline=_DEADLINE)

    def call(key: int) -> None:
        try:
            while True:
                limiter.acquire(f"k{key}")
                if crew.begin <= time.monotonic() < crew.end:
                    with lock:
                        counts[key] += 1
        except LimiterClosed:
            pass

    callers = [threading.Thread(target=call, args=(key,)) for key in range(crew.keys) for _ in range(crew.callers)]
    for each in callers:
        each.start()
    time.sleep(max(0.0, crew.end - time.monotonic()))
    limiter.close()
    for each in callers:
        each.join()
    return counts


def tasks(crew: Crew) -> Counts:
    """Call from the tasks of one loop."""
    return asyncio.run(_tasks(crew))


async def _tasks(crew: Crew) -> Counts:
    counts = [0] * crew.keys
    limiter = AsyncRateLimiter.from_url(crew.url, crew.quota, prefix=crew.prefix, deadline=_DEADLINE)

    async def call(key: int) -> None:
        while True:
            await limiter.acquire(f"k{key}")
            counts[key] += crew.begin <= time.monotonic() < crew.end

    callers = [asyncio.create_task(call(key)) for key in range(crew.keys) for _ in range(crew.callers)]
    await asyncio.sleep(max(0.0, crew.end - time.monotonic()))
    for each in callers:
        each.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    await limiter.close()
    return counts


APIS: dict[str, Callable[[Crew], Counts]] = {"threads": threads, "asyncio": tasks}


def _apart(api: str, link: Connection) -> None:
    link.send("here")  # a process that is new imports for a second, or for several on a busy machine
    link.send(APIS[api](link.recv()))


def admitted(api: str, url: str, quota: str, processes: int, seconds: float, keys: int = 1) -> Counts:
    """What all processes were admitted of each key within so many seconds."""
    spawn, links = multiprocessing.get_context("spawn"), []
    for _ in range(processes):
        ours, theirs = spawn.Pipe()
        spawn.Process(target=_apart, args=(api, theirs), daemon=True).start()
        links.append(ours)
    for each in links:
        each.recv()
    begin = time.monotonic() + _SETTLED
    crew = Crew(url, secrets.token_hex(4), quota, keys, _CALLERS if keys == 1 else 2, begin, begin + seconds)
    for each in links:
        each.send(crew)
    counts: list[Counts] = [each.recv() for each in links]
    return [sum(of_key) for of_key in zip(*counts, strict=True)]


def floor(api: str, rate: float, seconds: float, server: str = "") -> int:
    """Return how many tokens, of 1 / rate seconds each, one gets who only sleeps; with a server: who asks it, too."""
    if api == "asyncio":
        return asyncio.run(_floor(rate, seconds, server))
    count, end = 0, time.monotonic() + seconds
    with socket.socket(socket.AF_UNIX) as link:
        if server:
            link.connect(server)
        while (began := time.monotonic()) < end or count == 0:
            if server:
                link.sendall(_PING)
                link.recv(64)
            time.sleep(max(0.0, began + 1 / rate - time.monotonic()))
            count += 1
    return count


async def _floor(rate: float, seconds: float, server: str) -> int:
    reader, writer = await asyncio.open_unix_connection(server) if server else (None, None)
    count, end = 0, time.monotonic() + seconds
    while (began := time.monotonic()) < end or count == 0:
        if reader is not None and writer is not None:
            writer.write(_PING)
            await reader.readline()
        await asyncio.sleep(began + 1 / rate - time.monotonic())
        count += 1
    if writer is not None:
        writer.close()
        await writer.wait_closed()
    return count


def _floors(api: str, store: str, rate: float, seconds: float) -> str:
    said = f"only sleeping: {100 * floor(api, rate, seconds) / (rate * seconds):.1f} %"
    if store.startswith(_SOCKET):
        count = floor(api, rate, seconds, store.removeprefix(_SOCKET))
        said += f"; only asking, then sleeping: {100 * count / (rate * seconds):.1f} %"
    return said


def shares(
    url: str, rates: Sequence[float], bursts: Sequence[int], processes: Sequence[int], seconds: float
) -> Iterator[Figure]:
    """The share of each quota; a slow one is watched for 40 tokens at least."""
    for api, many, rate, burst in product(APIS, processes, rates, bursts):
        for store in ("memory://", url) if many == 1 else (url,):
            took = max(seconds, 40 / rate)
            count = sum(admitted(api, store, f"{rate:g}/s burst {burst}", many, took))
            where = "memory" if store == "memory://" else "server"
            name = f"{api}, {where}, {many} process{'es' * (many > 1)}: {rate:g}/s burst {burst}"
            note = _floors(api, store, rate, took) if burst == 1 else ""
            yield Figure(name, 100 * count / (rate * took), "%", at_least=_GOAL, note=note)


def many_keys(url: str, keys: int, seconds: float) -> Iterator[Figure]:
    """The shares of many keys of one process."""
    for api, store in product(APIS, ("memory://", url)):
        if api == "threads" and 2 * keys > 500:
            continue
        counts = admitted(api, store, "1/s burst 1", 1, seconds, keys)
        name = f"{api}, {'memory' if store == 'memory://' else 'server'}: {keys:,} keys of 1/s burst 1"
        yield Figure(name, 100 * sum(counts) / (keys * seconds), "%", at_least=_GOAL)
        yield Figure(f"{name}, the slowest", 100 * min(counts) / seconds, "%")


def _numbers(text: str) -> list[float]:
    return [float(each) for each in text.split(",")]


def main() -> None:
    """Print the figures as they come."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rates", type=_numbers, default=[4.0, 10.0, 100.0])
    parser.add_argument("--bursts", type=_numbers, default=[1, 2, 5])
    parser.add_argument("--processes", type=_numbers, default=[1, 4])
    parser.add_argument("--keys", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with closing(EmbeddedStore()) as store:
        url = store.url
        bursts, processes = [int(each) for each in args.bursts], [int(each) for each in args.processes]
        if args.keys:
            report(many_keys(url, args.keys, args.seconds), as_document=args.json)
        else:
            report(shares(url, args.rates, bursts, processes, args.seconds), as_document=args.json)


if __name__ == "__main__":
    main()
