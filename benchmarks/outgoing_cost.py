"""What a limited transport adds to a request whose tokens are leased: in threads, in tasks, and with `concurrency=`.

    python -m benchmarks.outgoing_cost [--url embedded://] [--json] [--rounds N]

The transport below answers at once: what a request takes longer over a LimitedTransport is ours: processor time of
the calling thread. All are measured in turn, and the least of the rounds counts: others slow the machine down.
"""

import argparse
import asyncio
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import httpx2

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.integrations.httpx import AsyncLimitedTransport, LimitedTransport
from batchlimit.stores.embedded import EmbeddedStore
from benchmarks.figures import Figure, report
from benchmarks.floor import TIMED, in_turn

_RICH = "50_000_000/s burst 50_000_000"
_CALLS = 200
_MOST_US = 15.0
_REQUEST = httpx2.Request("GET", "https://api.example.com/v1/models")
_OPTIONS: dict[str, dict[str, Any]] = {
    "a transport": {}, "observe=True": {"observe": True}, "concurrency=10": {"concurrency": 10}
}  # fmt: skip


class AtOnce(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """Answers at once."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, stream=httpx2.ByteStream(b"fine"))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, stream=httpx2.ByteStream(b"fine"))


def in_threads(transport: Any) -> TIMED:
    def run(calls: int) -> float:
        began = time.thread_time()
        for _ in range(calls):
            transport.handle_request(_REQUEST).close()
        return time.thread_time() - began

    return run


def in_tasks(transport: Any, loop: asyncio.AbstractEventLoop) -> TIMED:
    async def run(calls: int) -> float:
        began = time.thread_time()
        for _ in range(calls):
            await (await transport.handle_async_request(_REQUEST)).aclose()
        return time.thread_time() - began

    return lambda calls: loop.run_until_complete(run(calls))


def added(url: str, rounds: int) -> Iterator[Figure]:
    """Yield microseconds that each kind of transport adds."""
    prefix = f"bench-{secrets.token_hex(4)}"
    with ExitStack() as stack, asyncio.Runner() as runner:
        limiter = stack.enter_context(RateLimiter.from_url(url, _RICH, prefix=prefix))
        async_limiter = AsyncRateLimiter.from_url(url, _RICH, prefix=prefix)
        loop, plain = runner.get_loop(), AtOnce()
        every = {"threads": in_threads(plain), "tasks": in_tasks(plain, loop)}
        for name, options in _OPTIONS.items():
            every[f"threads: {name}"] = in_threads(LimitedTransport(limiter, transport=plain, **options))
            limited = AsyncLimitedTransport(async_limiter, transport=plain, **options)
            every[f"tasks: {name}"] = in_tasks(limited, loop)
        for _ in in_turn(every, 20, _CALLS):  # leases grow with what is asked for
            pass
        times = list(in_turn(every, rounds, _CALLS))
        runner.run(async_limiter.close())
    for name in list(every)[2:]:
        way, _, what = name.partition(": ")
        us = (min(each[name] for each in times) - min(each[way] for each in times)) / 1000
        at_most = _MOST_US if what == "a transport" else None
        yield Figure(f"added to a request, {way}: {what}", us, "us", at_most=at_most)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="embedded://", help="a server of its own by default")
    parser.add_argument("--json", action="store_true", help="print one document")
    parser.add_argument("--rounds", type=int, default=40)
    asked = parser.parse_args()
    with ExitStack() as stack:
        url = asked.url
        if url == "embedded://":
            url = stack.enter_context(closing(EmbeddedStore())).url
        found = report(added(url, asked.rounds), as_document=asked.json)
    return int(any(each.verdict == "short" for each in found))


if __name__ == "__main__":
    sys.exit(main())
