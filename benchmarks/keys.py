"""What keys cost: bytes of each, the first decision of a new one, room for it, and what else waits meanwhile.

    python benchmarks/keys.py [--quick] [--keys N] [--json]

The store is one in this process that grants everything and keeps nothing: what is measured is the limiter alone.
"""

import argparse
import gc
import statistics
import sys
import tracemalloc
from collections.abc import Iterator, Sequence

from batchlimit import RateLimiter
from batchlimit.batching import FixedBatch
from benchmarks.figures import Figure, as_json, ran_on
from benchmarks.memory import apart, resident
from benchmarks.newcomers import Seen, come_to_rest, crowd, limiter_of, waking
from benchmarks.plenty import Plenty

_FEW = 20_000
_LOT = 1000
_LONG = 600.0  # seconds: a lease that outlasts the measurement


def sizes() -> Iterator[Figure]:
    """Bytes of Python objects a key, its name included."""
    note = f"tracemalloc over {_FEW:,} keys, each used once"
    yield Figure("keys: at rest", apart(_at_rest, _FEW), "bytes", at_most=600, note=note)
    yield Figure("keys: awake, with tokens", apart(_awake, _FEW), "bytes", at_most=1700, note="until the lease is over")


def _at_rest(keys: int) -> float:
    with limiter_of(2 * keys) as limiter:
        return _traced(limiter, keys, rest=True)


def _awake(keys: int) -> float:
    limiter = RateLimiter(Plenty(_LONG), "1000/s burst 1000", sizer=FixedBatch(10), idle_after=_LONG)
    with limiter:
        return _traced(limiter, keys, rest=False)


def _traced(limiter: RateLimiter, keys: int, *, rest: bool) -> float:
    limiter.try_acquire("the first")
    gc.collect()
    tracemalloc.start()
    for number in range(keys):
        limiter.try_acquire(f"tenant:{number}")
    if rest:
        come_to_rest(limiter)
    gc.collect()
    return tracemalloc.get_traced_memory()[0] / keys


def wakes(rounds: int) -> Iterator[Figure]:
    """What it costs the caller that a key was at rest."""
    medians = [[statistics.median(times.work) for times in apart(waking, _LOT)] for _ in range(rounds)]
    awake, woken = map(statistics.median, zip(*medians, strict=True))
    note = f"the processor time of its thread, median of {rounds} rounds of {_LOT:,} keys"
    yield Figure("keys: an ask for a key that is awake", awake, "us", note=note)
    yield Figure("keys: an ask for a key that was at rest", woken, "us")
    yield Figure("keys: at rest/awake", statistics.median(rest / wake for wake, rest in medians))


def crowds(keys: int, seconds: float) -> Iterator[Figure]:
    """One process with so many keys."""
    seen = apart(_crowd, (keys, seconds))
    note = f"{keys:,} keys used once each, in {seen.collections.filling:.0f} s"
    yield Figure("keys: resident bytes of one at rest", seen.per_key, "bytes", at_most=600, note=note)
    yield from _first_decisions(seen, keys)
    yield from _collections(seen, keys)
    yield from _foreground(seen)


def _crowd(asked: tuple[int, float]) -> Seen:
    keys, seconds = asked
    return crowd(keys, resident, seconds)


def _first_decisions(seen: Seen, keys: int) -> Iterator[Figure]:
    named = (("the first keys", seen.first), (f"with {keys:,} there", seen.last), ("one leaves for it", seen.crowded))
    for name, times in named:
        yield Figure(f"keys: first decision, {name}", statistics.median(times.wall), "us")
        yield Figure(f"keys: first decision, {name}, p99.9", _share(times.wall, 0.999), "us")
        yield Figure(f"keys: first decision, {name}, worst", _share(times.wall, 1.0), "us")
    note = "by its thread's processor time, but for the garbage collector's: the longest pause"
    worst = _share(seen.crowded.work, 1.0) / 1000
    yield Figure("keys: first decision, one leaves for it, worst work", worst, "ms", at_most=20, note=note)
    ratio = statistics.median(seen.crowded.work) / statistics.median(seen.roomy.work)
    yield Figure("keys: newcomer, one leaves for it / none does", ratio, note="at another limiter, in turn")


def _collections(seen: Seen, keys: int) -> Iterator[Figure]:
    note = f"{1000 * seen.collect_before:.1f} ms of that without any key"
    yield Figure(f"keys: a full collection, {keys:,} at rest", 1000 * seen.collect_after, "ms", note=note)
    lasted = seen.collections.lasted
    note = "while they came"
    yield Figure("keys: full collections by themselves", len(lasted), note=note)
    yield Figure("keys: the longest of them", 1000 * max(lasted, default=0.0), "ms")


def _foreground(seen: Seen) -> Iterator[Figure]:
    named = (("alone", seen.alone), ("beside newcomers", seen.beside), ("beside a thread that counts", seen.control))
    for name, times in named:
        note = f"{len(times):,} calls for ten hot keys"
        yield Figure(f"keys: other keys' calls, {name}, p99.9", _share(times, 0.999), "us", note=note)
        yield Figure(f"keys: other keys' calls, {name}, worst", _share(times, 1.0) / 1000, "ms")


def _share(values: Sequence[float], share: float) -> float:
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))]


def main() -> int:
    """Run all of it; the exit status says whether a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="a tenth of the keys")
    parser.add_argument("--keys", type=int, help="how many are there in the end; a million, unless told")
    chosen = parser.parse_args()
    keys, seconds = chosen.keys or (100_000 if chosen.quick else 1_000_000), 1.0 if chosen.quick else 5.0
    figures = []
    if not chosen.json:
        print(ran_on(), flush=True)
    for figure in (
        figure for run in (sizes(), wakes(3 if chosen.quick else 11), crowds(keys, seconds)) for figure in run
    ):
        figures.append(figure)
        if not chosen.json:
            print(figure, flush=True)
    if chosen.json:
        print(as_json(figures))
    return int(any(figure.verdict == "short" for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
