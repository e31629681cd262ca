"""What callers who wait get while the store is far away for a while, and once it is near again.

    python -m benchmarks.far_for_a_while [--round-trips 30 100 300] [--quotas "1000/s" "1000/s burst 100"] [--rounds 3]

One process has four callers, threads or tasks, which call `acquire` all the time. The store is near for 3 s, so many
milliseconds away for 3 s, and near again for 6 s. A share is of the quota's rate.
"""

import argparse
import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import pairwise, product

from batchlimit import AsyncRateLimiter, Quota, RateLimited, RateLimiter
from batchlimit.stores.embedded import EmbeddedStore
from benchmarks.distance import movable
from benchmarks.figures import ran_on
from benchmarks.markdown import percent, table

CALLERS = 4
NEAR, FAR, AGAIN = 3.0, 3.0, 6.0
"""Seconds."""
SETTLED = 2.0
"""Seconds after which it is as before."""


def threads(url: str, quota: str, until: float) -> list[float]:
    """Have threads call, once at least; return when they were admitted."""
    admitted: list[float] = []

    def call() -> None:
        is_over = False
        while not is_over:
            with suppress(RateLimited):
                limiter.acquire("key", timeout=1.0)
                admitted.append(time.monotonic())
            is_over = time.monotonic() >= until

    with RateLimiter.from_url(url, quota, deadline=2.0) as limiter:
        crew = [threading.Thread(target=call) for _ in range(CALLERS)]
        for each in crew:
            each.start()
        for each in crew:
            each.join()
    return admitted


def tasks(url: str, quota: str, until: float) -> list[float]:
    """As `threads`."""
    admitted: list[float] = []

    async def call(limiter: AsyncRateLimiter) -> None:
        is_over = False
        while not is_over:
            with suppress(RateLimited):
                await limiter.acquire("key", timeout=1.0)
                admitted.append(time.monotonic())
            is_over = time.monotonic() >= until

    async def run() -> None:
        async with AsyncRateLimiter.from_url(url, quota, deadline=2.0) as limiter:
            await asyncio.gather(*(call(limiter) for _ in range(CALLERS)))

    asyncio.run(run())
    return admitted


def shares(
    callers: Callable[[str, str, float], list[float]], store: str, quota: str, round_trip: float
) -> tuple[float, ...]:
    """Return the shares of the rate: far away, in the first seconds after that, and later."""
    with movable(store, 0.0002) as (url, move):
        begun = time.monotonic()
        away, back = (threading.Timer(due, move, [trip]) for due, trip in ((NEAR, round_trip), (NEAR + FAR, 0.0002)))
        for each in (away, back):
            each.start()
        admitted = callers(url, quota, begun + NEAR + FAR + AGAIN)
        for each in (away, back):
            each.cancel()
            each.join()
    rate = Quota.parse(quota).bandwidths[0].rate
    ends = [begun + NEAR, begun + NEAR + FAR, begun + NEAR + FAR + SETTLED, begun + NEAR + FAR + AGAIN]
    return tuple(
        sum(start <= each < end for each in admitted) / (rate * (end - start)) for start, end in pairwise(ends)
    )


def main() -> None:
    """Print a row for each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--round-trips", type=float, nargs="+", default=[30.0, 100.0, 300.0], metavar="MS")
    parser.add_argument("--quotas", nargs="+", default=["1000/s", "1000/s burst 100"], metavar="QUOTA")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows = []
    for _, quota, trip, who in product(range(options.rounds), options.quotas, options.round_trips, (threads, tasks)):
        with closing(EmbeddedStore()) as store:
            found = shares(who, store.url, quota, trip / 1000)
        load = f"{os.getloadavg()[0]:.1f}"
        rows.append([quota, f"{trip:g} ms", who.__name__, *(percent(each, 0) for each in found), load])
    print(ran_on())
    print(table(["quota", "round trip", "callers", "far", f"the next {SETTLED:g} s", "later", "load"], rows))


if __name__ == "__main__":
    main()
