"""What a web limiter adds to each request that it admits, ours and others side by side, in one process without sockets.

    python -m benchmarks.web [--url embedded://] [--requests 50] [--rounds 40] [--round-trip MS] [--profile]

One application answers one request after the other, alone and behind each limiter in turn. The tables have what the
limiter adds to a request: the time that passes, and the processor time of this process, in the quickest round of each
less that of the application alone. On a busy machine the quickest round is the one that was disturbed least. All ask
the same Redis on this machine, through a Unix socket, or through a relay that makes the round trip longer.

"two fixed fields" is no limiter: a middleware that adds two constant header fields, which are as long as ours.
"a dependency that does nothing" is what FastAPI takes for any dependency.

The targets: 4 rules add at most 25 us of processor time; the best of the others that ask Redis adds 20 times the time.
"""

import argparse
import asyncio
import cProfile
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, closing
from functools import partial
from importlib.metadata import version
from itertools import starmap
from os import getloadavg
from typing import NamedTuple

from batchlimit.stores.embedded import EmbeddedStore
from benchmarks import web_asgi, web_django, web_wsgi
from benchmarks.distance import distant
from benchmarks.figures import ran_on
from benchmarks.web_rules import EMPTY, FLOOR

OURS, TARGET_US, TARGET_RATIO = "batchlimit", 25.0, 20.0
ALONE, ONE, FOUR = "no limiter", f"{OURS}, 1 rule", f"{OURS}, 4 rules"
_PACKAGES: tuple[str, ...] = (
    "slowapi",
    "fastapi-limiter",
    "pyrate-limiter",
    "asgi-ratelimit",
    "Flask-Limiter",
    "limits",
    "fastapi",
)
_PACKAGES += ("starlette", "Flask", "Django", "django-ratelimit", "redis")
_WARM = 100
"""Requests at the start of each turn that are not timed: leases are those of a service that is in use."""


class Cost(NamedTuple):
    """Microseconds a request: that pass, and of the processor."""

    passed: float
    processor: float

    def less(self, other: "Cost") -> "Cost":
        """Return what is added to another."""
        return Cost(self.passed - other.passed, self.processor - other.processor)


Run = Callable[[int], Awaitable[None]]
"""Serves so many requests."""


async def timed(run: Run, requests: int) -> Cost:
    """Return the cost of one request."""
    await run(_WARM)
    began = time.perf_counter(), time.process_time()
    await run(requests)
    return Cost((time.perf_counter() - began[0]) / requests * 1e6, (time.process_time() - began[1]) / requests * 1e6)


async def measure(runs: Mapping[str, Run], requests: int, rounds: int) -> dict[str, Cost]:
    """Return the quickest of all rounds, each with every run in turn, and another one first."""
    names = list(runs)
    found: dict[str, list[Cost]] = {name: [] for name in runs}
    for _ in range(rounds):
        names.append(names.pop(0))
        for name in names:
            found[name].append(await timed(runs[name], requests))
    return {name: Cost(min(e.passed for e in each), min(e.processor for e in each)) for name, each in found.items()}


def runs_of_tasks(apps: Mapping[str, web_asgi.App]) -> dict[str, Run]:
    """Return what serves requests by each ASGI application."""
    return {name: partial(web_asgi.serve, app) for name, app in apps.items()}


def runs_of_threads(apps: Mapping[str, web_wsgi.App]) -> dict[str, Run]:
    """Return what serves requests by each WSGI application."""

    async def run(app: web_wsgi.App, requests: int) -> None:
        web_wsgi.serve(app, requests)

    return {name: partial(run, app) for name, app in apps.items()}


def runs_in_a_thread(apps: Mapping[str, web_wsgi.App]) -> dict[str, Run]:
    """Return what serves requests by each, without a loop that runs: with one, views of Django are asynchronous."""

    async def run(app: web_wsgi.App, requests: int) -> None:
        await asyncio.to_thread(web_wsgi.serve, app, requests)

    return {name: partial(run, app) for name, app in apps.items()}


async def report(title: str, runs: Mapping[str, Run], requests: int, rounds: int) -> dict[str, Cost]:
    """Measure, print a table, and return what each adds."""
    costs = await measure(runs, requests, rounds)
    added = {name: each.less(costs[ALONE]) for name, each in costs.items() if name != ALONE}
    print(f"\n| {title}, alone {costs[ALONE].passed:.1f} us | added, us | of the processor | of ours with 4 rules |")
    print("| --- | --- | --- | --- |")
    for name, each in added.items():
        print(f"| {name} | {each.passed:.1f} | {each.processor:.1f} | {each.passed / added[FOUR].passed:.1f}x |")
    return added


def judged(title: str, costs: Mapping[str, Cost]) -> bool:
    """Print how one table compares with the targets; whether it met them."""
    passed, best = min((each.passed, name) for name, each in costs.items() if not name.startswith((OURS, FLOOR, EMPTY)))
    one, four = costs[ONE], costs[FOUR]
    print(f"{title}: 4 rules add {four.processor:.1f} us (target {TARGET_US:.0f}); the best of the others,")
    print(f"    {best}, adds {passed / one.passed:.1f}x of our 1 rule (target {TARGET_RATIO:.0f})", end=" ")
    print(f"and {passed / four.passed:.1f}x of our 4")
    return four.processor <= TARGET_US and passed >= TARGET_RATIO * one.passed


async def run(url: str, requests: int, rounds: int, profile: bool) -> int:
    """Measure and tell; 1 if a target was missed."""
    added = {}
    async with AsyncExitStack() as stack:
        plain = await web_asgi.entered(stack, web_asgi.stacks_on_plain(url))
        if profile:
            return await _profiled(plain[FOUR])
        fast = await web_asgi.entered(stack, web_asgi.stacks_on_fastapi(url))
        for title, apps in {"ASGI": plain, "FastAPI": fast}.items():
            added[title] = await report(title, runs_of_tasks(apps), requests, rounds)
    with ExitStack() as threads:
        flask = web_wsgi.entered(threads, web_wsgi.stacks(url))
        added["Flask"] = await report("Flask", runs_of_threads(flask), requests, rounds)
        sites = threads.enter_context(web_django.opened(url))
        added["Django"] = await report("Django", runs_in_a_thread(sites), requests, rounds)
    print()
    return int(not all(list(starmap(judged, added.items()))))


async def _profiled(app: web_asgi.App) -> int:
    await web_asgi.serve(app, 1000)
    with cProfile.Profile() as profile:
        await web_asgi.serve(app, 20_000)
    profile.print_stats("tottime")
    return 0


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="of a Redis that nobody else uses (default: a Valkey of its own)")
    parser.add_argument("--requests", type=int, default=50, help="in a round (default 50)")
    parser.add_argument("--rounds", type=int, default=40, help="default 40")
    parser.add_argument("--round-trip", type=float, default=0.0, help="ms to the store, in a relay (default: none)")
    parser.add_argument("--profile", action="store_true", help="profile 4 rules instead")
    chosen = parser.parse_args()
    print(f"{ran_on()}, load {getloadavg()[0]:.1f}; {', '.join(f'{name} {version(name)}' for name in _PACKAGES)}")
    with ExitStack() as stack:
        url = chosen.url or stack.enter_context(closing(EmbeddedStore())).url
        if chosen.round_trip:
            url = stack.enter_context(distant(url, chosen.round_trip / 1e3))
        return asyncio.run(run(url, chosen.requests, chosen.rounds, chosen.profile))


if __name__ == "__main__":
    sys.exit(main())
