"""Whether a call has become slower since last it was recorded: ratios to floors of the same run, in half a minute.

    python benchmarks/guard.py [--url embedded://] [--record]

Exit status 1 says one of these:
- A hit takes 2 % longer with telemetry than without.
- A ratio is worse than in results/guard.json by more than 30 %, or is not measured any more.
- A ratio is better by more than 30 %. The old record would let all of that be lost again.

A miss beside a PING may differ by 60 %, because a PING takes 34 to 100 us, as the system places client and server.

Exit status 2: the server cannot be reached. Times are printed and not judged. After a change on purpose, or with a new
ratio, record them anew. Do so on a quiet machine with the oldest Python, because ratios differ between versions.
"""

import argparse
import math
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

import redis

from batchlimit import RateLimiter
from batchlimit.stores.embedded import EmbeddedStore
from batchlimit.telemetry.prometheus import Deltas
from batchlimit.telemetry.reading import Sources
from benchmarks import many_keys, record
from benchmarks.asks import PING, PLAIN, misses, scripts
from benchmarks.figures import ran_on
from benchmarks.floor import TIMED, in_turn, timed
from benchmarks.hits import FLOOR, contenders
from benchmarks.small_limits.cells import GUARDED
from benchmarks.small_limits.cells import measured as measured_cell

_RECORD = Path(__file__).with_name("results") / "guard.json"
UNSEEN = "a hit, without"
_QUOTAS = "50_000_000/s burst 50_000_000"
_AT_MOST = {f"a hit, with telemetry / {UNSEEN}": 1.02}
"""Ratios that fail above this, whatever is recorded."""
_TOLERANCES = {f"a miss / {PING}": 0.6}
"""Of ratios whose floor is not the same on every day: see docs/performance."""
_SMALL = "small limits, a plain bucket / ours: "
_TOLERANCES |= {f"{_SMALL}{cell}": 0.01 for cell in GUARDED}
_PASSES = 20
"""All races come so many times: a machine that is busy for some seconds disturbs a part of each, and not all of one."""
_PATIENCE = 40.0
"""After so many seconds no pass begins any more. Where nothing else runs all of them take 20; six others for each core
made it 86, and changed no ratio by more than a sixth."""


@dataclass(slots=True)
class Race:
    """Calls that are timed in turn, so many at a time, in so many rounds of a pass; one of them is the floor."""

    every: Mapping[str, TIMED]
    floor: str
    calls: int
    rounds: int
    times: list[dict[str, float]] = field(default_factory=list)

    def warm_up(self) -> None:
        """Let leases, caches and the interpreter get used to it."""
        for _ in in_turn(self.every, 3, 5 * self.calls):
            pass

    def go_on(self) -> None:
        """Race once more."""
        self.times += in_turn(self.every, self.rounds, self.calls)

    def __str__(self) -> str:
        least = {name: record.quickest([each[name] for each in self.times]) for name in self.every}
        return ", ".join(f"{name} {nanoseconds:,.0f} ns" for name, nanoseconds in least.items())


def measured(url: str) -> list[Race]:
    """Run all races, a part of each in turn."""
    with contenders(url) as hits, seen(url) as looked_at, misses(url) as asks, scripts(url) as served:
        # A few hundred microseconds at a time, or the system's scheduler has its say in most of them.
        races = [
            Race(hits, FLOOR, 2000, 50),
            Race(looked_at, UNSEEN, 2000, 20),
            Race(asks, PING, 3, 150),
            Race(served, PLAIN, 100, 8),
        ]
        for race in races:
            race.warm_up()
        enough = time.monotonic() + _PATIENCE
        for _ in takewhile(lambda _: time.monotonic() < enough, range(_PASSES)):
            for race in races:
                race.go_on()
    return races


def many(url: str) -> dict[str, float]:
    """Return the ratios of calls that each come with another key: of processor time, to plain EVALSHA by redis-py."""
    seen = many_keys.costs(url)
    return {f"many keys, {api} / EVALSHA": many_keys.whole_ratio(turns) for api, turns in seen.items()}


def small() -> dict[str, float]:
    """Return what a plain bucket admits of small limits, over what limiters do: simulated, the same every time."""
    return {f"{_SMALL}{cell}": 1 / measured_cell(cell).part for cell in GUARDED}


def main() -> int:
    """Measure and compare, or record; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="embedded://")
    parser.add_argument("--record", action="store_true", help="write these ratios down instead of comparing them")
    chosen = parser.parse_args()
    try:
        with ExitStack() as stack:
            embedded = chosen.url == "embedded://"
            url = stack.enter_context(closing(EmbeddedStore())).url if embedded else chosen.url
            stack.enter_context(redis.Redis.from_url(url)).ping()
            races = measured(url)
            shares = many(url)
    except (redis.RedisError, ValueError) as reason:
        print(f"benchmarks/guard.py: {reason}", file=sys.stderr)
        return 2
    now = {name: ratio for race in races for name, ratio in record.ratios(race.times, race.floor).items()}
    now |= shares | small()
    rows = list(record.compare(now, {} if chosen.record else record.read(_RECORD), _TOLERANCES))
    print(ran_on(), *races, f"{'':<56} {'now':>8} {'recorded':>9}", *rows, sep="\n")
    if chosen.record:
        record.write(_RECORD, now, ran_on())
        return 0
    return _judged(rows)


@contextmanager
def seen(url: str) -> Iterator[dict[str, TIMED]]:
    """Yield a hit by name, of a limiter that a thread reads each second and of one that nobody reads."""
    prefix = f"guard-{secrets.token_hex(4)}"
    alone, read = (RateLimiter.from_url(url, _QUOTAS, prefix=f"{prefix}-{n}", deadline=1.0) for n in range(2))
    with alone, read:
        sources = Sources()
        sources.add("", read)
        deltas = Deltas(sources, lambda _series, _change: None, every=1.0)
        deltas.start()
        yield {
            UNSEEN: timed("limiter.try_acquire('hot')", limiter=alone),
            "a hit, with telemetry": timed("limiter.try_acquire('hot')", limiter=read),
        }
        deltas.stop()


def _judged(rows: list[record.Row]) -> int:
    failed = [row.name for row in rows if row.fails or (row.now or 0.0) > _AT_MOST.get(row.name, math.inf)]
    if all(row.verdict == "new" for row in rows):
        failed = ["nothing is recorded; scripts/guard --record does"]
    print(f"failed: {'; '.join(failed)}" if failed else "nothing has become slower")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
