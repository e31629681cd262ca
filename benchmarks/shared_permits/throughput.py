"""How much of a limit is used, and how fast a slot changes hands, beside other semaphores."""

import os
import time
from collections.abc import Sequence
from typing import Any

import redis

from benchmarks.markdown import percent, table
from benchmarks.shared_permits.crew import Crew, Run, run
from benchmarks.shared_permits.replay import handovers, most_at_once, tokens_grow, used
from tests.servers import any_binary, redis_server

Setting = tuple[str, int, dict[str, Any]]
"""Its name, how many processes, and the plan."""
_FEW: dict[str, Any] = {"limit": 4, "callers": 2, "hold": 0.01}
_MANY: dict[str, Any] = {"limit": 1000, "callers": 400, "hold": 0.01}
_ONE: dict[str, Any] = {"limit": 1, "callers": 2, "hold": 0.01}


def _many(limit: int, hold: float, callers: int) -> Setting:
    plan: dict[str, Any] = {"kind": "ours, tasks", "limit": limit, "callers": callers, "hold": hold}
    return f"N = {limit}, 4 processes, {hold * 1000:g} ms", 4, plan


SETTINGS: list[Setting] = [
    _many(1000, 0.01, 400),
    ("the same, a semaphore of 250 in each", 4, {"kind": "semaphore, tasks", **_MANY, "own": 250}),
    ("the same, 1000 tasks, no limit", 4, {"kind": "none, tasks", **_MANY, "callers": 250}),
    _many(1000, 0.1, 400),
    _many(1000, 0.5, 400),
    _many(100, 0.01, 50),
    ("N = 4, 8 processes, 10 ms", 8, {"kind": "ours", **_FEW}),
    ("the same, a ZSET, polled every 10 ms", 8, {"kind": "zset", **_FEW}),
    ("the same, a ZSET, polled every 1 ms", 8, {"kind": "zset", **_FEW, "sleep": 0.001}),
    ("the same, redis-rate-limiters, BLPOP", 8, {"kind": "blpop", **_FEW}),
    ("N = 1, 4 processes, 10 ms", 4, {"kind": "ours", **_ONE}),
    ("the same, Lock of redis-py, polled every 100 ms", 4, {"kind": "lock", **_ONE, "sleep": 0.1}),
    ("the same, Lock of redis-py, polled every 1 ms", 4, {"kind": "lock", **_ONE, "sleep": 0.001}),
    ("the same, redis-rate-limiters, BLPOP", 4, {"kind": "blpop", **_ONE}),
]
LARGEST: list[Setting] = [
    _many(limit, hold, limit // 4 + max(10, limit // 20))
    for limit, hold in ((50, 0.01), (100, 0.01), (150, 0.01), (200, 0.01), (1000, 0.05), (1000, 0.075), (1000, 0.1))
]
"""More and more permits a second: where does this machine end?"""
_HEAD = [
    "setting",
    "most at once",
    "permits / s",
    "used",
    "processors",
    "processor / permit",
    "handover p50",
    "round trip",
    "asks / permit",
    "by process",
]


def ping(url: str) -> float:
    """Return the median round trip (s) of a client that asks now and then, as callers do."""
    times = []
    with redis.Redis.from_url(url) as client:
        for _ in range(100):
            time.sleep(0.02)
            start = time.perf_counter()
            client.ping()
            times.append(time.perf_counter() - start)
    return sorted(times)[50]


def measure(url: str, setting: Setting, seconds: float) -> list[str]:
    """Return the row of a setting, on an empty server."""
    name, processes, plan = setting
    with redis.Redis.from_url(url) as client:
        client.flushall()
    trips: list[float] = []

    def meanwhile(_crew: Crew) -> tuple[int, int]:
        now = time.monotonic_ns()
        trips.append(ping(url))
        return now, now

    return [name, *_figures(run(url, processes, seconds, meanwhile, **plan, buffered=True), plan, seconds, trips[0])]


def _figures(found: Run, plan: dict[str, Any], seconds: float, trip: float) -> list[str]:
    holds, limit = found.holds, plan["limit"]
    gaps = handovers(holds, limit)
    grow = "" if limit > 1 or plan["kind"] != "ours" else ", tokens grow" if tokens_grow(holds) else ", TOKENS FALL"
    return [
        f"{most_at_once(holds)}{grow}",
        f"{len(holds) / seconds:,.0f}",
        percent(used(holds, limit, found.began, found.until), 1),
        f"{found.processor / seconds:.1f} of {os.cpu_count()}",
        f"{found.processor / max(1, len(holds)) * 1e6:.0f} us",
        f"{gaps[len(gaps) // 2] / 1e6 if gaps else 0.0:.2f} ms",
        f"{trip * 1e3:.2f} ms",
        percent(found.asks / len(holds), 1) if found.asks else "-",
        f"{min(found.shares)} to {max(found.shares)}",
    ]


def throughput(settings: Sequence[Setting], seconds: float = 5.0) -> None:
    """Print a row for each setting, as it is measured."""
    print(table(_HEAD, []), end="", flush=True)
    with redis_server(any_binary()) as url:
        for setting in settings:
            print(f"| {' | '.join(measure(url, setting, seconds))} |", flush=True)
