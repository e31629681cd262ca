"""What tokens and a permit at once cost in process, beside the two alone, in turn: `python -m benchmarks.admission`."""

import asyncio
import statistics
import time
from collections.abc import Iterator
from itertools import repeat

from batchlimit import AsyncConcurrencyLimiter, AsyncRateLimiter, ConcurrencyLimiter, RateLimiter
from batchlimit.admission import Admission, AsyncAdmission
from batchlimit.laws import Fixed
from benchmarks.figures import Figure, ran_on

_QUOTA = "1_000_000_000/s burst 1_000_000_000"
_CALLS = 2_000
Timing = tuple[float, float]
"""Processor time (ns) of a call by Admission, and of one that asks both limiters itself."""


def threads(rounds: int, calls: int = _CALLS) -> Iterator[Figure]:
    """`with both.admit("all"): pass`, in turn with `decide` and `with backend.acquire(): pass`."""
    with RateLimiter.from_url("memory://", _QUOTA) as rates, ConcurrencyLimiter(Fixed(20)) as backend:
        both = Admission(rates, backend)

        def together() -> None:
            for _ in repeat(None, calls):
                with both.admit("all"):
                    pass

        def alone() -> None:
            for _ in repeat(None, calls):
                with backend.acquire():
                    rates.decide("all")

        timings = []
        for _ in range(rounds):
            begin = time.process_time_ns()
            together()
            middle = time.process_time_ns()
            alone()
            timings.append(((middle - begin) / calls, (time.process_time_ns() - middle) / calls))
        yield from _compared("threads", timings)


def tasks(rounds: int, calls: int = _CALLS) -> Iterator[Figure]:
    """The same in one task."""
    yield from _compared("asyncio", asyncio.run(_tasks(rounds, calls)))


async def _tasks(rounds: int, calls: int) -> list[Timing]:
    async with AsyncRateLimiter.from_url("memory://", _QUOTA) as rates, AsyncConcurrencyLimiter(Fixed(20)) as backend:
        both = AsyncAdmission(rates, backend)
        timings = []
        for _ in range(rounds):
            begin = time.process_time_ns()
            for _ in repeat(None, calls):
                async with both.admit("all"):
                    pass
            middle = time.process_time_ns()
            for _ in repeat(None, calls):
                async with backend.acquire():
                    await rates.decide("all")
            timings.append(((middle - begin) / calls, (time.process_time_ns() - middle) / calls))
        return timings


def _compared(api: str, timings: list[Timing]) -> Iterator[Figure]:
    together, alone = map(statistics.median, zip(*timings, strict=True))
    yield Figure(f"{api}: tokens and a permit at once", together, "ns")
    yield Figure(f"{api}: `decide` within a permit", alone, "ns")
    ratio = statistics.median(each[0] / each[1] for each in timings)
    yield Figure(f"{api}: ratio", ratio, note="median of the rounds' ratios")


def main() -> None:
    """Print one figure a line."""
    print(ran_on())
    for part in (threads, tasks):
        for figure in part(9):
            print(figure, flush=True)


if __name__ == "__main__":
    main()
