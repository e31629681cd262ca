"""A fleet that calls an API with a limit: how often it is refused, how much it uses, and what a pause does.

    python -m benchmarks.outbound [--seconds 20] [--window 0] [--url URL] [--json]

Eight processes with fifty calls in flight each share 100/s over a real Valkey, by AsyncLimitedTransport under httpx2.
The provider is a process of its own: a bucket of 100/s that answers 429 and Retry-After beyond it. Later it answers one
call with `Retry-After: 5`, whatever its bucket holds. It notes when each request arrives, by the clock of the machine.
`--window 60` takes 30 s and twice 60 more: as many processes at `100 within 30s`, audited by when calls were admitted.
Exit status 1 if a target is missed.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from os import getloadavg
from typing import Any, NamedTuple

import httpx2

from batchlimit import AsyncRateLimiter, RateLimited
from batchlimit.integrations.httpx import AsyncLimitedTransport
from batchlimit.stores.embedded import EmbeddedStore
from benchmarks.figures import Figure, report

_PROCESSES, _IN_FLIGHT = 8, 50
_RATE, _THEIR_BURST = 100, 20
_OURS = "100/s burst 10"
"""Half of the provider's burst: what a network delays may arrive together."""
_PAUSE = 5.0
_SETTLE = 3.0
"""Seconds until all processes have begun."""
_AFTER = 6.0
"""Seconds that are looked at after the pause."""
_LEASE = 1.5
"""Seconds for which another process may spend what it has leased."""
_WINDOW = 30.0
_PATIENT = {"deadline": 1.0, "connect_timeout": 30.0}


class Arrival(NamedTuple):
    """A request at the provider: when it came, and how it was answered."""

    at: float
    status: int


class Provider:
    """A bucket of 100/s; `pauses_at`: from then on the next request is told to come back after five seconds."""

    def __init__(self, pauses_at: float) -> None:
        self._level, self._at = float(_THEIR_BURST), time.monotonic()
        self._pauses_at, self.paused_at = pauses_at, 0.0
        self.arrivals: list[Arrival] = []

    def answer(self) -> bytes:
        """Return the response to a request that has just come."""
        now = time.monotonic()
        self._level = min(_THEIR_BURST, self._level + (now - self._at) * _RATE)
        self._at, wait = now, (1 - self._level) / _RATE
        if not self.paused_at and now >= self._pauses_at:
            self.paused_at, wait = now, _PAUSE
        self.arrivals.append(Arrival(now, 429 if wait > 0 else 200))
        if wait > 0:
            milliseconds = b"%d" % (1000 * wait + 1)
            return (
                b"HTTP/1.1 429 Too Many Requests\r\nretry-after-ms: " + milliseconds + b"\r\ncontent-length: 0\r\n\r\n"
            )
        self._level -= 1
        return b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(self.answer())
        writer.close()


def provide(pipe: Connection, pauses_at: float, ends: float) -> None:
    """Be the provider until then; tell the port first, and in the end what came, and when it asked for the pause."""

    async def run() -> Provider:
        provider = Provider(pauses_at)
        server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await asyncio.sleep(ends - time.monotonic())
        return provider

    provider = asyncio.run(run())
    pipe.send((provider.paused_at, provider.arrivals))


def call(url: str, prefix: str, port: int, begins: float, ends: float, pipe: Connection) -> None:
    """Be one process of the fleet; tell how many calls were answered by status, those that were not sent among them."""
    answered: dict[str, int] = {}

    async def caller(client: httpx2.AsyncClient) -> None:
        while time.monotonic() < ends:
            response = await client.get(f"http://127.0.0.1:{port}/")
            told = "not sent" if "x-batchlimit" in response.headers else str(response.status_code)
            answered[told] = answered.get(told, 0) + 1

    async def run() -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=_IN_FLIGHT)
        inner = httpx2.AsyncHTTPTransport(limits=limits, trust_env=False)
        async with AsyncRateLimiter.from_url(url, _OURS, prefix=prefix, **_PATIENT) as limiter:  # type: ignore[arg-type]
            limited = AsyncLimitedTransport(limiter, wait=60, transport=inner)
            async with httpx2.AsyncClient(transport=limited, timeout=60, trust_env=False) as client:
                await asyncio.sleep(begins - time.monotonic())
                callers = [asyncio.ensure_future(caller(client)) for _ in range(_IN_FLIGHT)]
                await asyncio.sleep(ends - time.monotonic())
                for each in callers:
                    each.cancel()
                await asyncio.wait(callers)

    asyncio.run(run())
    pipe.send(answered)


def admit(url: str, prefix: str, begins: float, ends: float, pipe: Connection) -> None:
    """Be one process of a fleet at a strict window; tell when calls were admitted."""
    admitted: list[float] = []

    async def caller(limiter: AsyncRateLimiter) -> None:
        while True:
            with contextlib.suppress(RateLimited):
                await limiter.acquire("window", timeout=60)
                admitted.append(time.monotonic())

    async def run() -> None:
        quota = f"100 within {_WINDOW:.0f}s"
        async with AsyncRateLimiter.from_url(url, quota, prefix=prefix, **_PATIENT) as limiter:  # type: ignore[arg-type]
            await asyncio.sleep(begins - time.monotonic())
            callers = [asyncio.ensure_future(caller(limiter)) for _ in range(_IN_FLIGHT)]
            await asyncio.sleep(ends - time.monotonic())
            for each in callers:
                each.cancel()
            await asyncio.wait(callers)

    asyncio.run(run())
    pipe.send(admitted)


def heard(fleet: Sequence[Any]) -> list[Any]:
    """Run processes that each tell one thing by a pipe of its own; return what they told."""
    started = []
    for target, arguments in fleet:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.Process(target=target, args=(*arguments, theirs), daemon=True)
        process.start()
        started.append((process, ours))
    told = [pipe.recv() for _, pipe in started]
    for process, _ in started:
        process.join()
    return told


def outbound(url: str, prefix: str, seconds: float) -> Iterator[Figure]:
    """The fleet before, in and after a pause."""
    begins = time.monotonic() + _SETTLE
    pauses_at = begins + 1.0 + seconds
    ends = pauses_at + _PAUSE + _AFTER
    ours, theirs = multiprocessing.Pipe()
    provider = multiprocessing.Process(target=provide, args=(theirs, pauses_at, ends + 0.5), daemon=True)
    provider.start()
    port = ours.recv()
    answered = heard([(call, (url, prefix, port, begins, ends))] * _PROCESSES)
    paused_at, arrivals = ours.recv()
    provider.join()
    yield from _before([each for each in arrivals if begins + 1.0 <= each.at < pauses_at], seconds)
    yield from _pause(paused_at, arrivals)
    not_sent = sum(each.get("not sent", 0) for each in answered)
    yield Figure("calls that were not sent", not_sent, note="they would have waited longer than 60 s")


def _before(arrivals: Sequence[Arrival], seconds: float) -> Iterator[Figure]:
    good = sum(each.status == 200 for each in arrivals)
    yield Figure("429s of the provider for each success, percent", 100 * (len(arrivals) - good) / good, at_most=0.1)
    yield Figure("used of 100/s, percent", 100 * good / (_RATE * seconds), at_least=97.0, note=f"{good} calls")


def _pause(paused_at: float, arrivals: Sequence[Arrival]) -> Iterator[Figure]:
    over, ends = paused_at + _LEASE, paused_at + _PAUSE
    soon = [each.at - paused_at for each in arrivals if paused_at < each.at < over]
    yield Figure(
        "calls within 1.5 s of the 429 that asks for 5 s",
        len(soon),
        note=f"the last after {max(soon, default=0):.3f} s",
    )
    early = sum(over <= each.at < ends for each in arrivals)
    yield Figure("calls after that, before its end", early, at_most=0)
    first = [sum(ends + tenth / 10 <= each.at < ends + (tenth + 1) / 10 for each in arrivals) for tenth in range(10)]
    yield Figure("calls in the first second after it", sum(first), at_least=95.0, note=f"by tenths {first}")
    later = [sum(ends + n <= each.at < ends + n + 1 for each in arrivals) for n in range(1, int(_AFTER))]
    refused = sum(each.status == 429 and each.at >= ends for each in arrivals)
    yield Figure("429s after it", refused, note=f"calls in the seconds after the first: {later}")


def strict(url: str, prefix: str, seconds: float) -> Iterator[Figure]:
    """The fleet at a strict window."""
    begins = time.monotonic() + _SETTLE
    ends = begins + _WINDOW + 2 * seconds
    told = heard([(admit, (url, prefix, begins, ends))] * _PROCESSES)
    admitted = sorted(at for each in told for at in each)
    window, most = deque[float](), 0
    for at in admitted:
        window.append(at)
        while window[0] < at - _WINDOW:
            window.popleft()
        most = max(most, len(window))
    yield Figure("most in a window of 30 s at `100 within 30s`", most, at_most=100)
    kept = sum(at >= begins + _WINDOW for at in admitted) / (2 * seconds) * _WINDOW
    yield Figure("used of 100 a window, percent", kept, at_least=90.0, note=f"after the first; {len(admitted)} calls")


def figures(arguments: argparse.Namespace) -> Iterator[Figure]:
    """All of them."""
    with ExitStack() as stack:
        url = arguments.url
        if url is None:
            store = stack.enter_context(contextlib.closing(EmbeddedStore()))
            url = store.url
        prefix = f"outbound-{time.time_ns()}"
        yield from outbound(url, prefix, arguments.seconds)
        if arguments.window:
            yield from strict(url, prefix, arguments.window)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--window", type=float, default=0.0)
    parser.add_argument("--url")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    ran = json.dumps({"processes": _PROCESSES, "calls in flight": _IN_FLIGHT, "quota": _OURS, "load": getloadavg()[0]})
    found = report(figures(arguments), as_document=arguments.json, ran=ran)
    sys.exit(any(each.verdict == "short" for each in found))


if __name__ == "__main__":
    main()
