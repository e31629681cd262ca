"""Which files and functions of the package a call passes: a hit, a refusal from memory, a miss, a permit, a request.

    python benchmarks/path.py [--url embedded://] [--list] [--json]

Only the caller's thread is looked at, and only this package: redis-py's own functions do not count. Nor does a function
that stands inside another one.
"""

import argparse
import asyncio
import secrets
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

# Run as a file, Python looks beside it; what it needs lies in the checkout around it.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fastapi import FastAPI

import batchlimit
from batchlimit import AsyncConcurrencyLimiter, AsyncRateLimiter, ConcurrencyLimiter, RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.integrations.fastapi import add_rate_limits
from batchlimit.rules import Rule
from batchlimit.stores.embedded import EmbeddedServer
from benchmarks.figures import Figure, report

HIT, REFUSAL = "a hit", "a refusal from memory"
FIRST, ANOTHER = "the first request", "a request of another user"
UNUSED, IN_USE = "a miss, the key not in use", "a miss, the key in use"
PERMIT = "a permit"
THREADS, TASKS, WEB = "threads", "tasks", "FastAPI"
AT_MOST = {
    (THREADS, UNUSED): (12, 45),
    (THREADS, IN_USE): (20, 102),
    (TASKS, UNUSED): (12, 40),
    (TASKS, IN_USE): (20, 105),
    (THREADS, PERMIT): (4, 10),
    (TASKS, PERMIT): (4, 10),
    (WEB, FIRST): (35, 132),
    (WEB, ANOTHER): (22, 62),
    (WEB, HIT): (8, 13),
}
"""Files and functions that a miss, which spends or leases, a permit and a request may pass; any other call: one."""
_PACKAGE = Path(batchlimit.__file__).parent
_QUOTAS = {"dry": "1/hour", "*": "1_000_000/s burst 1_000_000"}
_WARM = ((0, "hot"), (0, "dry"), (1, "warm"))
"""Keys that are known by then, of the first or the second limiter."""
_TRIES, _REQUESTS, _APPS = 50, 500, 5
_PROTOCOL_CHECK = type(Protocol).__instancecheck__.__code__
"""To ask whether a store keeps a protocol takes 6 us: it counts as a file of ours."""
Function = tuple[str, str]
"""A file, as it is named in the package, and a function's name in it."""


class Passed:
    """The functions that this thread enters, in the order of their first time."""

    def __init__(self) -> None:
        self._seen: dict[Function, None] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note what is entered meanwhile."""
        before = sys.getprofile()
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _note(self, frame: FrameType, event: str, _argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        is_ours = path.is_relative_to(_PACKAGE)
        if event == "call" and (is_ours or frame.f_code is _PROTOCOL_CHECK):
            name = frame.f_code.co_qualname.partition(".<locals>")[0]
            self._seen[str(path.relative_to(_PACKAGE) if is_ours else path.name), name] = None

    @property
    def functions(self) -> list[Function]:
        """All of them."""
        return list(self._seen)

    @property
    def files(self) -> list[str]:
        """Where they stand, each file once."""
        return list(dict.fromkeys(file for file, _ in self._seen))


def _seen(call: Callable[[], object]) -> Passed:
    passed = Passed()
    with passed.watched():
        call()
    return passed


def _least(tries: Iterable[Passed]) -> Passed:
    """Return the shortest way: other work of the event loop comes between, a lease may be empty, or the store late."""
    return min(tries, key=lambda passed: len(passed.functions))


def threads(url: str) -> dict[str, Passed]:
    """Return what each kind of call of a RateLimiter passes."""
    prefix = f"bench-{secrets.token_hex(4)}"
    with (
        RateLimiter.from_url(url, _QUOTAS, prefix=prefix, deadline=5.0) as rich,
        RateLimiter.from_url(url, _QUOTAS, prefix=prefix, deadline=5.0, sizer=FixedBatch(1)) as poor,
        ConcurrencyLimiter() as permits,
    ):
        for number, key in _WARM * 5:
            (rich, poor)[number].try_acquire(key)

        def held() -> None:
            with permits.acquire():
                pass

        def seen_in_use() -> Passed:
            poor.acquire("used", 0)  # on a slow machine the key is dormant by now
            return _seen(partial(poor.try_acquire, "used"))

        return {
            HIT: _least(_seen(partial(rich.try_acquire, "hot")) for _ in range(_TRIES)),
            REFUSAL: _least(_seen(partial(rich.try_acquire, "dry")) for _ in range(_TRIES)),
            UNUSED: _least(_seen(partial(rich.try_acquire, f"new-{n}")) for n in range(_TRIES)),
            IN_USE: _least(seen_in_use() for _ in range(_TRIES)),
            PERMIT: _least(_seen(held) for _ in range(_TRIES)),
        }


def tasks(url: str) -> dict[str, Passed]:
    """Return what each kind of call of an AsyncRateLimiter passes, its event loop's callbacks among it."""
    return asyncio.run(_tasks(url))


async def _tasks(url: str) -> dict[str, Passed]:
    prefix = f"bench-{secrets.token_hex(4)}"
    async with (
        AsyncRateLimiter.from_url(url, _QUOTAS, prefix=prefix, deadline=5.0) as rich,
        AsyncRateLimiter.from_url(url, _QUOTAS, prefix=prefix, deadline=5.0, sizer=FixedBatch(1)) as poor,
        AsyncConcurrencyLimiter() as permits,
    ):
        for number, key in _WARM * 5:
            await (rich, poor)[number].try_acquire(key)

        async def seen_in_use() -> Passed:
            await poor.acquire("used", 0)
            return await _seen_awaited(partial(poor.try_acquire, "used"))

        async def held() -> None:
            async with permits.acquire():
                pass

        return {
            HIT: _least([await _seen_awaited(partial(rich.try_acquire, "hot")) for _ in range(_TRIES)]),
            REFUSAL: _least([await _seen_awaited(partial(rich.try_acquire, "dry")) for _ in range(_TRIES)]),
            UNUSED: _least([await _seen_awaited(partial(rich.try_acquire, f"new-{n}")) for n in range(_TRIES)]),
            IN_USE: _least([await seen_in_use() for _ in range(_TRIES)]),
            PERMIT: _least([await _seen_awaited(held) for _ in range(_TRIES)]),
        }


async def _seen_awaited(call: Callable[[], Awaitable[object]]) -> Passed:
    passed = Passed()
    with passed.watched():
        await call()
    return passed


def web(url: str) -> dict[str, Passed]:
    """Return what requests of a FastAPI application pass before it, at one key or each at another."""
    return asyncio.run(_web(url))


async def _web(url: str) -> dict[str, Passed]:
    firsts = [(await _requests(url, 1))[0] for _ in range(_APPS)]
    hits, others = await _requests(url, _REQUESTS), await _requests(url, _TRIES, each=":{ip}")
    return {FIRST: _least(firsts), HIT: _least(hits), ANOTHER: _least(others)}


async def _requests(url: str, requests: int, each: str = "") -> list[Passed]:
    app = FastAPI()
    app.get("/")(_answer)
    rule = Rule("all", "1_000_000/s burst 1_000_000", key=f"bench-{secrets.token_hex(4)}{each}")
    middleware = add_rate_limits(app, url, [rule], checks=False)
    try:
        return [await _seen_served(app, f"192.0.2.{n % 256}") for n in range(requests)]
    finally:
        await middleware.close()


async def _seen_served(app: FastAPI, client: str) -> Passed:
    of = {"method": "GET", "path": "/", "headers": [], "query_string": b"", "client": (client, 5)}
    scope = {"type": "http", **of}
    passed = Passed()
    with passed.watched():
        await app(scope, _receive, _send)
    return passed


async def _answer() -> str:
    return "hello"


async def _receive() -> dict[str, Any]:
    return {"type": "http.request"}


async def _send(_message: Any) -> None:
    pass


def figures(seen: dict[str, dict[str, Passed]]) -> Iterator[Figure]:
    """How many files and functions each kind of call passes."""
    for api, kinds in seen.items():
        for kind, passed in kinds.items():
            files, functions = AT_MOST.get((api, kind), (1, 1))
            yield Figure(f"{api}: {kind}: files", len(passed.files), at_most=files)
            yield Figure(f"{api}: {kind}: functions", len(passed.functions), at_most=functions)


def main() -> None:
    """Print one figure a line, and before them the functions if they are wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="embedded://")
    parser.add_argument("--list", action="store_true", help="print all functions too, each with its file")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with ExitStack() as stack:
        embedded = chosen.url == "embedded://"
        url = stack.enter_context(closing(EmbeddedServer())).url if embedded else chosen.url
        seen = {THREADS: threads(url), TASKS: tasks(url), WEB: web(url)}
    if chosen.list:
        for api, kinds in seen.items():
            for kind, passed in kinds.items():
                print(f"{api}: {kind}", *(f"    {file}: {name}" for file, name in passed.functions), sep="\n")
    report(figures(seen), as_document=chosen.json)


if __name__ == "__main__":
    main()
