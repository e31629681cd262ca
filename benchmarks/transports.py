"""What the connections of stores/client save, beside redis-py with a socket timeout: processor time for each take.

The same script on the same server, by turns. "kept": DirectTransport keeps the connection, redis-py reads and writes.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

# Run as a file, Python looks beside it; what it needs lies in the checkout around it.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import redis
import redis.asyncio

from batchlimit.stores import AsyncRedisStore, RedisStore
from batchlimit.stores.client.deadline import CALL
from batchlimit.stores.embedded import EmbeddedServer
from benchmarks.crews import QUOTA, ask
from benchmarks.figures import Figure, report

_CALLS = 3200
_TIMEOUT = 1.0


def threads(url: str, rounds: int) -> Iterator[Figure]:
    """Processor time of one thread, for each take."""
    with (
        closing(RedisStore.from_url(url, deadline=_TIMEOUT)) as direct,
        closing(RedisStore.from_url(f"{url}?health_check_interval=3600", deadline=_TIMEOUT)) as kept,
        closing(redis.Redis.from_url(url, socket_timeout=_TIMEOUT)) as client,
    ):
        ways = {
            "RespSocket, within a deadline": partial(_take_in_time, direct),
            "kept": partial(_take, kept),
            "redis-py": partial(_take, RedisStore(client)),
        }
        _take(direct, 1)  # it connects
        yield from _compared("threads", ways, rounds)


def tasks(url: str, rounds: int) -> Iterator[Figure]:
    """Processor time of an event loop, for each take of 1 or 64 tasks."""
    with asyncio.Runner() as runner:
        direct = runner.run(_made(url))
        client = redis.asyncio.Redis.from_url(url, socket_timeout=_TIMEOUT)
        stores = {"MultiplexedConnection": direct, "redis-py": AsyncRedisStore(client)}
        for many in (1, 64):
            ways = {name: partial(_run_tasks, runner, store, many) for name, store in stores.items()}
            yield from _compared(f"tasks, {many}", ways, rounds)
        runner.run(direct.aclose())
        runner.run(client.aclose())


async def _made(url: str) -> AsyncRedisStore:
    return AsyncRedisStore.from_url(url, deadline=_TIMEOUT)


def _compared(name: str, ways: Mapping[str, Callable[[], None]], rounds: int) -> Iterator[Figure]:
    rows = [[_timed(way) for way in ways.values()] for _ in range(rounds)]
    for way, column in zip(ways, zip(*rows, strict=True), strict=True):
        yield Figure(f"{name}: {way}", statistics.median(column), "us", note=f"median of {rounds} rounds, in turn")


def _timed(way: Callable[[], None]) -> float:
    """Microseconds of this thread's processor time for each call."""
    begun = time.thread_time()
    way()
    return (time.thread_time() - begun) / _CALLS * 1e6


def _take(store: RedisStore, calls: int = _CALLS) -> None:
    for _ in range(calls):
        store.take("key", QUOTA, ask())


def _take_in_time(store: RedisStore) -> None:
    for _ in range(_CALLS):
        CALL.until = time.monotonic() + _TIMEOUT
        store.take("key", QUOTA, ask())
    CALL.until = None


def _run_tasks(runner: asyncio.Runner, store: AsyncRedisStore, many: int) -> None:
    runner.run(_gathered(store, many))


async def _gathered(store: AsyncRedisStore, many: int) -> None:
    await asyncio.gather(*(_take_awaited(store, _CALLS // many) for _ in range(many)))


async def _take_awaited(store: AsyncRedisStore, calls: int) -> None:
    for _ in range(calls):
        await store.take("key", QUOTA, ask())


def main() -> None:
    """Print one figure a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with closing(EmbeddedServer()) as server:
        parts = (threads(server.url, arguments.rounds), tasks(server.url, arguments.rounds))
        report((figure for part in parts for figure in part), as_document=arguments.json)


if __name__ == "__main__":
    main()
