"""What a hit costs beside a lock and a subtraction: by key, by bucket, awaited, refused; and many threads at once.

    python benchmarks/hits.py [--url embedded://] [--json] [--quick] [--rounds N] [--only NAME]

All that is compared is measured in turn, within the same moments: on a busy machine times double, their ratios do not.
"""

import argparse
import gc
import secrets
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import repeat

from batchlimit import RateLimiter
from batchlimit.stores.embedded import EmbeddedStore
from benchmarks.crowd import crowds, refusals
from benchmarks.figures import Figure, report
from benchmarks.floor import TIMED, floor, in_turn, timed
from benchmarks.tasks import Loop

# So rich that a lease outlasts a round, but for one key, which is as good as always dry.
_QUOTAS = {"dry": "100/s", "*": "50_000_000/s burst 50_000_000"}
_CALLS = 2000
"""In a round: less than a millisecond, or a busy system has its say in most of them."""
FLOOR = "lock, test and subtraction"
_AT_MOST = {"try_acquire(key)": 1.0, "bucket.try_acquire()": 0.7, "try_acquire(key, 3)": 2.0}


@contextmanager
def contenders(url: str) -> Iterator[dict[str, TIMED]]:
    """Yield each kind of call by name, on limiters that live meanwhile."""
    prefix = f"bench-{secrets.token_hex(4)}"
    with RateLimiter.from_url(url, _QUOTAS, prefix=prefix, deadline=1.0) as limiter, Loop(url, _QUOTAS["*"]) as loop:
        bucket = limiter.bucket("hot")
        yield {
            FLOOR: floor(),
            "try_acquire(key)": timed("limiter.try_acquire('hot')", limiter=limiter),
            "bucket.try_acquire()": timed("bucket.try_acquire()", bucket=bucket),
            "try_acquire(key, 3)": timed("limiter.try_acquire('hot', 3)", limiter=limiter),
            "bucket.try_acquire(3)": timed("bucket.try_acquire(3)", bucket=bucket),
            "try_acquire(key), refused": timed("limiter.try_acquire('dry')", limiter=limiter),
            "await try_acquire(key)": lambda calls: loop.timed(calls) * calls / 1e9,
        }
        if not limiter.statistics().available or not limiter.try_acquire("hot"):
            raise SystemExit(f"{url} is away: what was timed are no hits")


def hit(url: str, rounds: int) -> Iterator[Figure]:
    """One thread, or one task: nanoseconds, and the ratios to the floor."""
    with contenders(url) as every:
        for _ in in_turn(every, 10, _CALLS):  # leases grow with what is asked for
            pass
        times = list(in_turn(every, rounds, _CALLS))
    note = f"one thread, median of {rounds} rounds of {_CALLS:,} calls each, in turn"
    for name in every:
        yield Figure(f"hit: {name}", statistics.median(each[name] for each in times), "ns", note=note)
        note = ""
    note = "median of the rounds' ratios"
    for name in list(every)[1:]:
        ratio = statistics.median(each[name] / each[FLOOR] for each in times)
        yield Figure(f"hit: {name} / floor", ratio, at_most=_AT_MOST.get(name), note=note)


_HITS = 20_000
"""So few that a busy machine has time for them within one lease: a renewal allocates."""
_THOUSANDS = _HITS // 1000
_PER = "per 1,000 hits"
_TRIES = 10


def blocks(url: str) -> Iterator[Figure]:
    """What hits leave behind in memory, which is nothing."""
    with RateLimiter.from_url(url, _QUOTAS["*"], prefix=f"bench-{secrets.token_hex(4)}", deadline=1.0) as limiter:
        yield Figure("hit: blocks that stay allocated", _growth(limiter) // _THOUSANDS, at_most=0, note=_PER)
    with Loop(url, _QUOTAS["*"]) as loop:
        loop.timed(_CALLS)
        yield Figure("hit: blocks that stay, awaited", loop.growth(_HITS) // _THOUSANDS, at_most=0, note=_PER)


def _growth(limiter: RateLimiter) -> int:
    """The least of several tries, because a lease that ends meanwhile allocates for its renewal."""
    gc.collect()
    grown = []
    for _ in range(_TRIES):
        before = sys.getallocatedblocks()
        for _ in repeat(None, _HITS):
            limiter.try_acquire("hot")
        grown.append(sys.getallocatedblocks() - before)
    return max(0, min(grown))


def benchmarks(url: str, rounds: int) -> dict[str, Callable[[], Iterator[Figure]]]:
    """All there are, by the name that --only takes."""
    return {
        "hit": lambda: hit(url, 100 * rounds),
        "blocks": lambda: blocks(url),
        "crowds": lambda: crowds(url, rounds),
        "refusals": lambda: refusals(url, rounds),
    }


def main() -> None:
    """Print one figure a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="embedded://")
    parser.add_argument("--json", action="store_true", help="print one document instead of lines")
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument(
        "--rounds", type=int, default=7, help="of the crowds, some 10 s each; hits have a hundred times as many"
    )
    parser.add_argument("--only", choices=benchmarks("", 0))
    chosen = parser.parse_args()
    with ExitStack() as stack:
        embedded = chosen.url == "embedded://"
        url = stack.enter_context(closing(EmbeddedStore())).url if embedded else chosen.url
        every = benchmarks(url, 1 if chosen.quick else chosen.rounds)
        runs = [run for name, run in every.items() if chosen.only in (None, name)]
        report((figure for run in runs for figure in run()), as_document=chosen.json)


if __name__ == "__main__":
    main()
