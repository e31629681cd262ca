"""Where the wait for a pool's connection belongs: inside the time of a call if the limit is above the size of the pool.

With a limit of the size callers wait in the limiter's queue instead, and no law learns of that.
"""

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import asyncpg
import httpx
import pytest
import redis
import sqlalchemy

from batchlimit import ConcurrencyLimiter, Queue
from batchlimit.concurrency import Sample
from tests.awaiting import awaited
from tests.integrations.outgoing.upstream import Said, upstream
from tests.nodes import await_fact
from tests.servers import Servers

Pool = tuple[Callable[[], Any], Callable[[Any], object]]
"""Takes its only connection, and gives it back."""


class Times:
    """A law whose limit stays, and which notes how long calls took (s)."""

    def __init__(self, limit: int) -> None:
        self.limit, self.seen = limit, list[float]()

    def update(self, sample: Sample) -> int:
        self.seen.append(sample.rtt_ns / 1e9)
        return self.limit


@pytest.fixture(params=["sqlalchemy", "redis-py", "httpx", "asyncpg"])
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    """A pool of one connection, of each library in turn."""
    makers = {"sqlalchemy": _sqlalchemy, "redis-py": _redis, "httpx": _httpx, "asyncpg": _asyncpg}
    yield from makers[request.param](request)


def _sqlalchemy(_: pytest.FixtureRequest) -> Iterator[Pool]:
    engine = sqlalchemy.create_engine(
        "sqlite://",
        poolclass=sqlalchemy.QueuePool,
        pool_size=1,
        max_overflow=0,
        pool_timeout=600,
        connect_args={"check_same_thread": False},
    )
    yield engine.connect, lambda connection: connection.close()
    engine.dispose()


def _redis(request: pytest.FixtureRequest) -> Iterator[Pool]:
    servers: Servers = request.getfixturevalue("servers")
    url = servers.get("valkey").url
    pool = redis.BlockingConnectionPool.from_url(url, max_connections=1, timeout=600)
    yield pool.get_connection, pool.release
    pool.disconnect()


def _httpx(_: pytest.FixtureRequest) -> Iterator[Pool]:
    limits = httpx.Limits(max_connections=1)
    with upstream() as server, httpx.Client(limits=limits, timeout=600, trust_env=False) as client:
        server.says = lambda: Said(body=[b"one", b"two"])
        yield lambda: client.send(client.build_request("GET", server.url), stream=True), lambda got: got.close()


def _asyncpg(_: pytest.FixtureRequest) -> Iterator[Pool]:
    url = os.environ.get("BATCHLIMIT_POSTGRES") or pytest.skip("BATCHLIMIT_POSTGRES names no server of Postgres")

    async def opened() -> Any:
        return await asyncpg.create_pool(url, min_size=1, max_size=1)

    pool = awaited(opened)
    yield lambda: awaited(pool.acquire), lambda connection: awaited(pool.release, connection)
    awaited(pool.close)


@pytest.mark.parametrize(("limit", "seen"), [(2, 5.0), (1, 0.0)], ids=["a limit above its size", "of its size"])
def test_the_wait_for_a_pool_of_one_connection(pool: Pool, limit: int, seen: float) -> None:
    """A call that comes five seconds before the only connection is free."""
    take, give = pool
    law, now = Times(limit), [0]
    limiter = ConcurrencyLimiter(law, queue=Queue(10, max_wait=None), clock=lambda: now[0])

    def call() -> None:
        with limiter.acquire():
            give(take())

    with limiter.acquire():
        connection = take()
        second = threading.Thread(target=call)
        second.start()
        await_fact(lambda: _come(limiter) == 2, "the second call has come")
        now[0] = 5_000_000_000
        give(connection)
    second.join()
    assert sorted(law.seen) == [seen, 5.0]
    limiter.close()


def _come(limiter: ConcurrencyLimiter) -> int:
    found = limiter.statistics()
    return found.in_flight + found.waiting
