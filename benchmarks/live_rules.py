"""How long it takes from `set` until the last of many busy processes obeys, and what they admit afterwards.

    python -m benchmarks.live_rules --url redis://localhost:6379/0 --processes 8 --changes 50 --tasks

An operator sets another quota every two to three seconds, in turn far below the demand and far above. Each process
calls as fast as it can be heard. An override is obeyed once the key's reservoir goes by it.
"""

import argparse
import asyncio
import multiprocessing
import time
from statistics import median
from typing import Any, NamedTuple

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.admin import Admin
from batchlimit.stores.embedded import EmbeddedStore
from benchmarks.figures import Figure, ran_on, report

_KEY, _PREFIX = "search:ann", "live-rules"
_RATES = 50, 5000
_LEASE = 1.5
"""Seconds after which all have to obey."""
_AUDITED = 0.6
"""Seconds from then on in which the admitted calls are counted."""


class Spell(NamedTuple):
    """The tokens that one process admitted in a few milliseconds, and the rate that it went by."""

    at: float
    admitted: int
    rate: float


class Set(NamedTuple):
    """When an operator had set which rate."""

    at: float
    rate: int


def call(url: str, ready: Any, stop: Any, found: Any) -> None:
    """One process: calls until it is stopped."""
    spells = []
    with RateLimiter.from_url(url, "20000/s", prefix=_PREFIX, deadline=1.0) as limiter:
        limiter.acquire(_KEY)
        ready.release()
        while not stop.is_set():
            began, admitted = time.monotonic(), 0
            while time.monotonic() - began < 0.005:
                admitted += limiter.try_acquire(_KEY)
                time.sleep(0.0002)
            entry = limiter._registry.entries.get(_KEY)
            spells.append(Spell(began, admitted, entry.reservoir.state.quota.rate if entry else 0.0))
    found.put(spells)


def call_in_tasks(url: str, ready: Any, stop: Any, found: Any) -> None:
    """One process on asyncio: the same."""
    found.put(asyncio.run(_calls(url, ready, stop)))


async def _calls(url: str, ready: Any, stop: Any) -> list[Spell]:
    spells = []
    async with AsyncRateLimiter.from_url(url, "20000/s", prefix=_PREFIX, deadline=1.0) as limiter:
        await limiter.acquire(_KEY)
        ready.release()
        while not stop.is_set():
            began, admitted = time.monotonic(), 0
            while time.monotonic() - began < 0.005:
                admitted += await limiter.try_acquire(_KEY)
                await asyncio.sleep(0.0002)
            entry = limiter._registry.entries.get(_KEY)
            spells.append(Spell(began, admitted, entry.reservoir.state.quota.rate if entry else 0.0))
    return spells


def measure(url: str, processes: int, changes: int, *, in_tasks: bool) -> tuple[list[Set], list[list[Spell]]]:
    """Return what was set, and what each process did."""
    context = multiprocessing.get_context("spawn")
    ready, stop, found = context.Semaphore(0), context.Event(), context.Queue()
    crew = [
        context.Process(target=call_in_tasks if in_tasks else call, args=(url, ready, stop, found))
        for _ in range(processes)
    ]
    for each in crew:
        each.start()
    for _ in crew:
        ready.acquire()
    done = []
    with Admin.from_url(url, prefix=_PREFIX) as admin:
        for number in range(changes):
            rate = _RATES[number % 2]
            admin.set("search:*", f"{rate}/s", until="1h", why="a benchmark")
            done.append(Set(time.monotonic(), rate))
            time.sleep(_LEASE + _AUDITED + 0.1 * (number % 7))
        stop.set()
        spells = [found.get() for _ in crew]
        admin.unset("search:*")
    for each in crew:
        each.join()
    return done, spells


def last_obeys(one: Set, until: float, spells: list[list[Spell]]) -> float:
    """Seconds until the last process goes by what was set."""
    firsts = [
        next((each.at - one.at for each in of_one if one.at <= each.at < until and each.rate == one.rate), _LEASE * 10)
        for of_one in spells
    ]
    return max(firsts)


def excess(one: Set, spells: list[list[Spell]]) -> float:
    """By how many tokens the admissions after a lease exceed burst and refill; below 0: by none."""
    begins = one.at + _LEASE
    admitted = sum(each.admitted for of_one in spells for each in of_one if begins <= each.at < begins + _AUDITED)
    return admitted - one.rate * (1.0 + _AUDITED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a server that is there; by default one is started")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--changes", type=int, default=50)
    parser.add_argument("--tasks", action="store_true", help="on asyncio; by default on threads")
    parser.add_argument("--json", action="store_true", help="one document instead of lines")
    chosen = parser.parse_args()
    server = None if chosen.url else EmbeddedStore()
    url = chosen.url or (server.url if server else "")
    done, spells = measure(url, chosen.processes, chosen.changes, in_tasks=chosen.tasks)
    ends = [each.at for each in done[1:]] + [float("inf")]
    times = [last_obeys(one, until, spells) for one, until in zip(done, ends, strict=True)]
    worst = max(excess(one, spells) for one in done)
    figures = [
        Figure("the last process obeys after, median", median(times), "s", at_most=_LEASE),
        Figure("the last process obeys after, at most", max(times), "s", at_most=_LEASE),
        Figure("tokens above the quota in force, after a lease", max(0.0, worst), "tokens", at_most=0.0),
    ]
    front = "asyncio" if chosen.tasks else "threads"
    ran = f"{chosen.processes} processes on {front}, {chosen.changes} changes; {ran_on()}"
    report(figures, as_document=chosen.json, ran=ran)
    if server is not None:
        server.close()


if __name__ == "__main__":
    main()
