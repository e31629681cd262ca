"""How long a caller waits at the longest while the server hangs, and a thread of its process computes meanwhile.

    python -m benchmarks.longest_wait [--runs N] [--deadline S] [--json]

Four threads, or four tasks, call `try_acquire` at keys of their own through a relay that then lets nothing through. A
wait is at an end when the call returns. The thread that computes keeps the interpreter for 5 ms at a time, which is
Python's switch interval: whoever wakes meanwhile is as late.
"""

import argparse
import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import product

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.stores.embedded import EmbeddedStore
from benchmarks.figures import Figure, report
from tests.relay import Relay

_CALLERS = 4
_QUOTA = "100/s"
_BEFORE, _HANGING = 0.3, 1.0
"""Seconds for which the server answers, and for which it hangs."""


@contextmanager
def computing(threads: int) -> Iterator[None]:
    """Have so many threads do nothing but compute."""
    over = False

    def compute() -> None:
        while not over:
            sum(range(1000))

    workers = [threading.Thread(target=compute) for _ in range(threads)]
    for each in workers:
        each.start()
    try:
        yield
    finally:
        over = True
        for each in workers:
            each.join()


def _hang(relay: Relay) -> None:
    time.sleep(_BEFORE)
    relay.drop()


def of_threads(url: str, deadline: float, relay: Relay) -> float:
    """Return the longest wait of a thread, in seconds."""
    longest = [0.0] * _CALLERS
    end = time.monotonic() + _BEFORE + _HANGING

    def call(caller: int) -> None:
        while (begun := time.monotonic()) < end:
            limiter.try_acquire(f"key {caller}")
            longest[caller] = max(longest[caller], time.monotonic() - begun)
            time.sleep(0.001)

    with RateLimiter.from_url(url, _QUOTA, deadline=deadline) as limiter:
        callers = [threading.Thread(target=call, args=(caller,)) for caller in range(_CALLERS)]
        for each in callers:
            each.start()
        _hang(relay)
        for each in callers:
            each.join()
    return max(longest)


def of_tasks(url: str, deadline: float, relay: Relay) -> float:
    """Return the longest wait of a task, in seconds."""
    return asyncio.run(_of_tasks(url, deadline, relay))


async def _of_tasks(url: str, deadline: float, relay: Relay) -> float:
    end = time.monotonic() + _BEFORE + _HANGING

    async def call(key: str) -> float:
        longest = 0.0
        while (begun := time.monotonic()) < end:
            await limiter.try_acquire(key)
            longest = max(longest, time.monotonic() - begun)
            await asyncio.sleep(0.001)
        return longest

    async with AsyncRateLimiter.from_url(url, _QUOTA, deadline=deadline) as limiter:
        hang = asyncio.to_thread(_hang, relay)
        *longest, _ = await asyncio.gather(*(call(f"key {caller}") for caller in range(_CALLERS)), hang)
    return max(each for each in longest if each is not None)


APIS: dict[str, Callable[[str, float, Relay], float]] = {"threads": of_threads, "tasks": of_tasks}


def waits(server: str, runs: int, deadline: float) -> Iterator[Figure]:
    """The longest waits, in milliseconds: of the median run, and of the worst."""
    for (api, longest), busy in product(APIS.items(), (0, 1)):
        found = []
        for _ in range(runs):
            with Relay(server, 0.0) as relay, computing(busy):
                found.append(1000 * longest(relay.url, deadline, relay))
        found.sort()
        name = f"{api}, {busy} computing: longest wait"
        yield Figure(name, found[len(found) // 2], "ms", note=f"median of {runs} runs")
        yield Figure(f"{name} of all runs", found[-1], "ms", note=" ".join(f"{each:.0f}" for each in found))


def main() -> None:
    """Print the figures as they come."""
    logging.getLogger("batchlimit").setLevel(logging.CRITICAL)  # each limiter says that its store is away
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--deadline", type=float, default=0.05)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with closing(EmbeddedStore()) as store:
        report(waits(store.url, args.runs, args.deadline), as_document=args.json)


if __name__ == "__main__":
    main()
