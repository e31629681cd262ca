"""What a permit costs, in threads and in tasks, by law, beside the semaphores of the standard library in one run."""

import argparse
import asyncio
import gc
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

# Run as a file, Python looks beside it; what it needs lies in the checkout around it.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimited, ConcurrencyLimiter, Partitions
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, Keyed, KeyedConcurrencyLimiter, Law, Sample
from batchlimit.concurrency.laws import AIMD, Fixed, Gradient2, Knee, Vegas, Windowed
from benchmarks.figures import Figure, report

_CALLS = 10_000
_PROCESSOR = time.process_time_ns
Timing = tuple[float, float, float, float]
"""ns of a permit, of one of a partition, of one of a key, and of a semaphore."""
LAWS: dict[str, Callable[[], Law]] = {
    "Knee": Knee,
    "Fixed": lambda: Fixed(20),
    "AIMD": lambda: AIMD(timeout=5),
    "Gradient2": Gradient2,
    "Vegas": Vegas,
    "Windowed(Gradient2)": lambda: Windowed(Gradient2()),
}


def threads(rounds: int) -> Iterator[Figure]:
    """`with limiter.acquire(): pass` in one thread, in turn with `with semaphore: pass`."""
    limiter, shared = ConcurrencyLimiter(_default()), ConcurrencyLimiter(_default(), partitions=_halves())
    keyed = KeyedConcurrencyLimiter({"*": Keyed(_default)})
    semaphore = threading.Semaphore(20)
    timings = [
        (
            _timed(_block(limiter.acquire)),
            _timed(_block(lambda: shared.acquire("a"))),
            _timed(_block(lambda: keyed.acquire("repo:42"))),
            _timed(_block(lambda: semaphore)),
        )
        for _ in range(rounds)
    ]
    yield from _compared("threads", "threading.Semaphore", timings, at_most=3000)


def tasks(rounds: int) -> Iterator[Figure]:
    """`async with limiter.acquire(): pass` in one task, in turn with `async with semaphore: pass`."""
    yield from _compared("asyncio", "asyncio.Semaphore", asyncio.run(_tasks(rounds)), at_most=2000)


async def _tasks(rounds: int) -> list[Timing]:
    limiter, shared = AsyncConcurrencyLimiter(_default()), AsyncConcurrencyLimiter(_default(), partitions=_halves())
    keyed = AsyncKeyedConcurrencyLimiter({"*": Keyed(_default)})
    semaphore = asyncio.Semaphore(20)
    return [
        (
            await _awaited(limiter.acquire),
            await _awaited(lambda: shared.acquire("a")),
            await _awaited(lambda: keyed.acquire("repo:42")),
            await _awaited(lambda: semaphore),
        )
        for _ in range(rounds)
    ]


def refusals(rounds: int) -> Iterator[Figure]:
    """What a caller takes that is refused at once, in turn with one that is let in: processor time."""
    limiter, full = ConcurrencyLimiter(_default()), ConcurrencyLimiter(Fixed(1))
    with full.acquire():
        pairs = [(_timed(_block(limiter.acquire), _PROCESSOR), _refused(full.acquire)) for _ in range(rounds)]
    yield from _refused_by("threads", pairs)
    yield from _refused_by("asyncio", asyncio.run(_refused_tasks(rounds)))


async def _refused_tasks(rounds: int) -> list[tuple[float, float]]:
    limiter, full = AsyncConcurrencyLimiter(_default()), AsyncConcurrencyLimiter(Fixed(1))
    async with full.acquire():
        return [(await _awaited(limiter.acquire, _PROCESSOR), await _refused_task(full.acquire)) for _ in range(rounds)]


def _refused_by(api: str, pairs: list[tuple[float, float]]) -> Iterator[Figure]:
    yield Figure(f"{api}: a refusal", statistics.median(each[1] for each in pairs), "ns", note="of the processor")
    ratio = statistics.median(refused / let_in for let_in, refused in pairs)
    yield Figure(f"{api}: a refusal / a permit", ratio, at_most=1.2, note="median of the rounds' ratios")


def laws(rounds: int) -> Iterator[Figure]:
    """What each law takes for a sample of a call that took about 20 ms, 20 of them under way."""
    for name, make in LAWS.items():
        timings = [_updates(make()) for _ in range(rounds)]
        yield Figure(f"law: {name}", statistics.median(timings), "ns", note="a sample")


def _default() -> Law:
    return Knee()


def _halves() -> Partitions:
    return Partitions({"a": 0.5, "b": 0.5})


def _compared(api: str, rival: str, timings: list[Timing], at_most: float) -> Iterator[Figure]:
    permit, shared, keyed, semaphore = map(statistics.median, zip(*timings, strict=True))
    note = f"median of {len(timings)} rounds of {_CALLS:,} each, in turn"
    yield Figure(f"{api}: a permit", permit, "ns", at_most=at_most, note=note)
    yield Figure(f"{api}: a permit of a partition", shared, "ns")
    yield Figure(f"{api}: a permit of a key", keyed, "ns")
    yield Figure(f"{api}: {rival}", semaphore, "ns")
    ratio = statistics.median(each[0] / each[3] for each in timings)
    yield Figure(f"{api}: ratio", ratio, note="median of the rounds' ratios")
    by_key = statistics.median(each[2] / each[0] for each in timings)
    yield Figure(f"{api}: a key's permit / a permit", by_key, at_most=1.5, note="median of the rounds' ratios")


def _block(context: Callable[[], Any]) -> Callable[[], None]:
    def pass_through() -> None:
        for _ in repeat(None, _CALLS):
            with context():
                pass

    return pass_through


def _refused(context: Callable[[], Any]) -> float:
    begin = _PROCESSOR()
    for _ in repeat(None, _CALLS):
        try:
            with context():
                pass
        except ConcurrencyLimited:
            pass
    return (_PROCESSOR() - begin) / _CALLS


async def _refused_task(context: Callable[[], Any]) -> float:
    begin = _PROCESSOR()
    for _ in repeat(None, _CALLS):
        try:
            async with context():
                pass
        except ConcurrencyLimited:
            pass
    return (_PROCESSOR() - begin) / _CALLS


def _timed(call: Callable[[], None], clock: Callable[[], int] = time.perf_counter_ns) -> float:
    begin = clock()
    call()
    return (clock() - begin) / _CALLS


async def _awaited(context: Callable[[], Any], clock: Callable[[], int] = time.perf_counter_ns) -> float:
    begin = clock()
    for _ in repeat(None, _CALLS):
        async with context():
            pass
    return (clock() - begin) / _CALLS


def _updates(law: Law) -> float:
    samples = [Sample(i * 1_000_000, 20_000_000 + i * 7919 % 5_000_000, 20) for i in range(_CALLS)]
    begin = time.perf_counter_ns()
    for sample in samples:
        law.update(sample)
    return (time.perf_counter_ns() - begin) / _CALLS


PARTS: dict[str, Callable[[int], Iterator[Figure]]] = {
    "threads": threads,
    "asyncio": tasks,
    "refusals": refusals,
    "laws": laws,
}


def main() -> None:
    """Print one figure a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--quick", action="store_true", help="three rounds instead of 21")
    parser.add_argument("--json", action="store_true", help="print one document instead of lines")
    args = parser.parse_args()
    gc.freeze()
    wanted = [args.only] if args.only else list(PARTS)
    figures = (figure for part in wanted for figure in PARTS[part](3 if args.quick else 21))
    report(figures, as_document=args.json)


if __name__ == "__main__":
    main()
