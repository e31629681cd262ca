"""The same callers, at the same time, before fleets of servers that are limited in unlike ways."""

import asyncio
import math
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import product
from multiprocessing.connection import Connection
from random import Random
from typing import Any

import grpc
import grpc.aio

from benchmarks.child import Served, all_served
from benchmarks.limited_servers import KNEE, WAYS, Setup, serve
from benchmarks.markdown import percent, table
from benchmarks.poisson import ENDS, End
from benchmarks.slots import SLOTS, backend

KINDS = "FastAPI", "grpc.aio", "grpc threads"
_SERVICE, _DEADLINE = 0.1, 1.0
"""Seconds. 10 slots serve 100 calls a second: 300 before each of three fleets leave the processors idle."""
_SETTLED = 20.0
"""Seconds before which calls are not counted as goodput; refusals always are."""
_LEAST, _HALF = 0.95, 0.5
_ATTEMPTS, _MOST_LAG = 2, 0.1
"""Callers that start later than that, in seconds (p99), measure what else the machine does: the run is made again."""

Call = Callable[[float], Awaitable[End]]
"""One call that is given up after so many seconds."""


@asynccontextmanager
async def callers(kind: str, ports: Sequence[str]) -> AsyncIterator[list[Call]]:
    """Yield a Call for each server."""
    async with AsyncExitStack() as stack:
        if kind == "FastAPI":
            yield [_http(port) for port in ports]
            return
        channels = [await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}")) for port in ports]
        for channel in channels:
            await channel.channel_ready()
        yield [_rpc(channel) for channel in channels]


def _http(port: str) -> Call:
    """A connection for each request: uvicorn counts those that are merely open as well."""

    async def call(patience: float) -> End:
        try:
            async with asyncio.timeout(patience):
                reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
                try:
                    writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                    answer = await reader.read()
                finally:
                    writer.close()
        except TimeoutError:
            return End.LATE
        return {b"200": End.ANSWERED, b"503": End.REFUSED}.get(answer[9:12], End.FAILED)

    return call


def _rpc(channel: grpc.aio.Channel) -> Call:
    method: Any = channel.unary_unary("/bench.Backend/Call")

    async def call(patience: float) -> End:
        try:
            await method(b"", timeout=patience)
        except grpc.aio.AioRpcError as error:
            return ENDS.get(error.code(), End.FAILED)
        return End.ANSWERED

    return call


@dataclass(slots=True)
class Fleet:
    """The servers that are limited in one way, and what became of the calls to them."""

    way: str
    links: Sequence[Connection]
    calls: Sequence[Call]
    ends: Counter[End] = field(default_factory=Counter)
    came: list[float] = field(default_factory=list)
    in_time: list[float] = field(default_factory=list)
    """When all callers came, and those that were answered in time: seconds from the start."""

    def refused(self) -> float:
        return self.ends[End.REFUSED] / self.ends.total()

    def goodput(self, seconds: float) -> float:
        """Answers in time over what the slots can serve of what came, after the first seconds."""
        came, answered = (sum(each >= _SETTLED for each in times) for times in (self.came, self.in_time))
        return answered / min(came, SLOTS / _SERVICE * (seconds - _SETTLED))

    def limits(self) -> int:
        for link in self.links:
            link.send("what is the limit?")
        return sum(link.recv() for link in self.links)


async def _offer(fleets: Sequence[Fleet], rate: float, seconds: float) -> list[float]:
    """Send each caller to the same server of each fleet at once; return by how much callers were late."""
    random, start, lags = Random(f"{rate} {len(fleets[0].calls)}"), time.monotonic(), []

    async def call(fleet: Fleet, place: int, came: float) -> None:
        fleet.came.append(came)
        fleet.ends[end := await fleet.calls[place](start + came + _DEADLINE - time.monotonic())] += 1
        if end is End.ANSWERED:
            fleet.in_time.append(came)

    came = 0.0
    async with asyncio.TaskGroup() as group:
        while (came := came + random.expovariate(rate)) < seconds:
            await asyncio.sleep(start + came - time.monotonic())
            lags.append(time.monotonic() - start - came)
            place = random.randrange(len(fleets[0].calls))
            for fleet in fleets:
                group.create_task(call(fleet, place, came))
    return lags


@dataclass(frozen=True, slots=True)
class Run:
    """What became of three fleets under the same calls."""

    fleets: Sequence[Fleet]
    limits: Sequence[int]
    """The sum of each fleet, at the end."""
    lag: float
    """By how much callers were late, p99, in seconds."""
    machine: float
    """Its load."""


def run(kind: str, processes: int, load: float, seconds: float) -> Run:
    """Offer so many times what the slots serve; again, if the machine was busy with something else."""
    runs = list[Run]()
    while len(runs) < _ATTEMPTS and not (runs and runs[-1].lag <= _MOST_LAG):
        runs.append(_run(kind, processes, load, seconds))
    return min(runs, key=lambda each: each.lag)


def _run(kind: str, processes: int, load: float, seconds: float) -> Run:
    with ExitStack() as stack:
        links = {}
        for way, (port, _) in zip(
            WAYS, stack.enter_context(all_served(backend, [[_SERVICE]] * len(WAYS))), strict=True
        ):
            setup = Setup(kind, way, math.ceil(2 * SLOTS / processes), int(port))
            links[way] = stack.enter_context(all_served(serve, [[setup]] * processes))
        fleets, lags = asyncio.run(_call_all(kind, links, load * SLOTS / _SERVICE, seconds))
        limits = [fleet.limits() for fleet in fleets]
        return Run(fleets, limits, sorted(lags)[int(0.99 * len(lags))], os.getloadavg()[0])


async def _call_all(
    kind: str, links: dict[str, list[Served]], rate: float, seconds: float
) -> tuple[list[Fleet], list[float]]:
    async with AsyncExitStack() as stack:
        fleets = []
        for way, found in links.items():
            calls = await stack.enter_async_context(callers(kind, [port for port, _ in found]))
            fleets.append(Fleet(way, [link for _, link in found], calls))
        return fleets, await _offer(fleets, rate, seconds)


def contest(processes: Sequence[int], loads: Sequence[float], seconds: float, kinds: Sequence[str]) -> bool:
    """Measure all, and print; return whether our law refused nobody at .5x and answered .95 at 2x and more."""
    rows, held = [], True
    for kind, count, load in product(kinds, processes, loads):
        found = run(kind, count, load, seconds)
        ours = next(fleet for fleet in found.fleets if fleet.way == KNEE)
        is_refusing = load <= _HALF and ours.ends[End.REFUSED] > 0
        held = held and not is_refusing and (load < 2 or ours.goodput(seconds) >= _LEAST)
        rows.append([kind, str(count), f"{load:g}x", *_cells(found, seconds)])
        print(*rows[-1], file=sys.stderr, flush=True)
    heads = [f"{way}: {what}" for way in WAYS for what in ("refused", "goodput")]
    print(table(["server", "processes", "load", *heads, "sums of limits", "callers late", "machine"], rows))
    return held


def _cells(found: Run, seconds: float) -> Iterator[str]:
    for fleet in found.fleets:
        lost = fleet.ends[End.LATE] + fleet.ends[End.FAILED]
        yield percent(fleet.refused()) + (f", {lost} late or failed" if lost else "")
        yield f"{fleet.goodput(seconds):.3f}"
    yield " / ".join(map(str, found.limits))
    yield f"{1000 * found.lag:.0f} ms"
    yield f"{found.machine:.1f}"
