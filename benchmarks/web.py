"""What a web front adds to each request that it admits, in one process, without sockets.

    python benchmarks/web.py [--url embedded://] [--requests 2000] [--rounds 40] [--profile]

An ASGI application answers one request after the other, alone and behind each middleware, in turn. The table has the
processor time of one request in the quickest round, and how much more that is than alone. On a busy machine the
quickest round is the one that was disturbed least. The target is 25 us more for 4 rules.
"""

import argparse
import asyncio
import cProfile
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from batchlimit import AsyncRateLimiter
from batchlimit.integrations.asgi import RateLimitMiddleware
from batchlimit.rules import Rule, Rules

App = Callable[[Any, Any, Any], Awaitable[None]]
TARGET_US = 25.0
_PLENTY = "1000000/s burst 1000000"
FOUR = [
    Rule("address", _PLENTY, key="address:{ip}", match="/api/*"),
    Rule("user", _PLENTY, key="user:{user}", match="/api/*"),
    Rule("route", _PLENTY, key="route:{user}", match="GET /api/items/{id}"),
    Rule("all", _PLENTY, key="all"),
]
_START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}
_BODY = {"type": "http.response.body", "body": b"hello"}
_HEADERS = [(b"host", b"api.example"), (b"user-agent", b"benchmark"), (b"accept", b"*/*"), (b"x-user", b"ann")]


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer at once."""
    await send(_START)
    await send(_BODY)


async def receive() -> dict[str, Any]:
    """Have no body."""
    return {"type": "http.request", "body": b"", "more_body": False}


async def send(message: Any) -> None:
    """Take what is sent; a refusal would be measured as if it were fast."""
    if message.get("status", 200) != 200:
        raise AssertionError(f"refused: {message}")


def scope() -> dict[str, Any]:
    """Return a request, as a server makes one for each."""
    return {
        "type": "http",
        "method": "GET",
        "path": "/api/items/7",
        "headers": _HEADERS,
        "client": ("192.0.2.1", 50_000),
    }


def identify(scope: Any) -> dict[str, str]:
    """Say who asks."""
    return {"user": "ann"}


async def serve(app: App, requests: int) -> float:
    """Return the processor time of one request (us)."""
    began = time.process_time()
    for _ in range(requests):
        await app(scope(), receive, send)
    return (time.process_time() - began) / requests * 1e6


async def measure(apps: dict[str, App], requests: int, rounds: int) -> dict[str, float]:
    """Return the quickest round of each."""
    times: dict[str, list[float]] = {name: [] for name in apps}
    for _ in range(rounds):
        for name, app in apps.items():
            times[name].append(await serve(app, requests))
            await asyncio.sleep(0)
    return {name: min(each) for name, each in times.items()}


async def run(arguments: argparse.Namespace) -> int:
    """Measure and tell; 1 if the target was missed."""
    async with AsyncRateLimiter.from_url(arguments.url, Rules(FOUR).quotas, deadline=1.0) as limiter:
        apps: dict[str, App] = {
            "no limiter": application,
            "1 rule": RateLimitMiddleware(application, limiter, FOUR[3:], identify=identify),
            "4 rules": RateLimitMiddleware(application, limiter, FOUR, identify=identify),
            "4 rules, no headers": RateLimitMiddleware(application, limiter, FOUR, identify=identify, headers="off"),
        }
        for app in apps.values():
            await serve(app, 1000)
        if arguments.profile:
            with cProfile.Profile() as profile:
                await serve(apps["4 rules"], 20_000)
            profile.print_stats("tottime")
            return 0
        found = await measure(apps, arguments.requests, arguments.rounds)
    alone = found["no limiter"]
    print(f"| {'behind':<20} | us a request | more than alone |")
    print(f"|{'-' * 22}|-------------:|----------------:|")
    for name, each in found.items():
        print(f"| {name:<20} | {each:12.1f} | {each - alone:15.1f} |")
    return int(found["4 rules"] - alone > TARGET_US)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="embedded://", help="where the buckets are (default: a Valkey of its own)")
    parser.add_argument("--requests", type=int, default=2000, help="in a round (default 2000)")
    parser.add_argument("--rounds", type=int, default=40, help="default 40")
    parser.add_argument("--profile", action="store_true", help="profile 4 rules instead")
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
