"""Actors of dramatiq under one limit, with a real broker."""

import contextlib
from collections.abc import Iterator
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import ResultFailure, Results
from dramatiq.results.backends import RedisBackend

from batchlimit import RateLimiter
from batchlimit.integrations.dramatiq import LimitedActors
from batchlimit.integrations.task_limit import TIMES
from tests.nodes import await_fact
from tests.servers import Server


@pytest.fixture
def limiter(valkey: Server, prefix: str) -> Iterator[RateLimiter]:
    with RateLimiter.from_url(valkey.url, {"mail:*": "40/s burst 4", "*": "1/hour"}, prefix=prefix) as made:
        yield made


@pytest.fixture
def broker(valkey: Server, prefix: str, limiter: RateLimiter) -> Iterator[RedisBroker]:
    make: Any = RedisBroker
    broker = make(url=valkey.url, namespace=prefix)
    broker.add_middleware(LimitedActors(limiter))
    kept: Any = Results
    backend: Any = RedisBackend(url=valkey.url, namespace=f"{prefix}-results")
    broker.add_middleware(kept(backend=backend))
    yield broker
    broker.close()
    for client in (broker.client, backend.client):  # neither closes its connections
        client.connection_pool.disconnect()


@contextlib.contextmanager
def working(broker: RedisBroker) -> Iterator[None]:
    worker = dramatiq.Worker(broker, worker_threads=4, worker_timeout=100)
    worker.start()
    try:
        yield
    finally:
        worker.stop()


def test_each_message_is_processed_once_and_none_of_its_retries_is_used_up(
    broker: RedisBroker, limiter: RateLimiter
) -> None:
    ran: list[tuple[int, dict[str, Any]]] = []
    current: Any = dramatiq.middleware.CurrentMessage.get_current_message

    @dramatiq.actor(broker=broker, limit_key="mail:{to}", max_retries=0, store_results=True)
    def mail(number: int, to: str) -> int:
        ran.append((number, dict(current().options)))
        return number

    broker.add_middleware(dramatiq.middleware.CurrentMessage())
    with working(broker):
        sent = [mail.send(number, to="ann") for number in range(30)]
        backend = broker.get_results_backend()
        results = [each.get_result(backend=backend, block=True, timeout=60_000) for each in sent]
    assert sorted(number for number, _ in ran) == results == list(range(30))
    assert limiter.statistics().admitted == 30
    assert max(options.get(TIMES, 0) for _, options in ran) > 0
    assert {options.get("retries", 0) for _, options in ran} == {0}


def test_a_message_that_cannot_be_limited_fails_and_does_not_run(broker: RedisBroker) -> None:
    ran: list[str] = []

    @dramatiq.actor(broker=broker, limit_key="mail:{nobody}", max_retries=0, store_results=True)
    def odd(to: str) -> None:
        ran.append(to)

    @dramatiq.actor(broker=broker, limit_key="mail:{to}", limit_cost=99, max_retries=0, store_results=True)
    def dear(to: str) -> None:
        ran.append(to)

    with working(broker):
        for message in (odd.send(to="ann"), dear.send(to="ann")):
            with pytest.raises(ResultFailure, match="cannot be limited"):
                message.get_result(backend=broker.get_results_backend(), block=True, timeout=60_000)
    assert ran == []


def test_an_actor_without_a_key_is_not_limited(broker: RedisBroker, limiter: RateLimiter) -> None:
    ran: list[int] = []

    @dramatiq.actor(broker=broker)
    def count(number: int) -> None:
        ran.append(number)

    with working(broker):
        for number in range(3):
            count.send(number)
        await_fact(lambda: len(ran) == 3, "all were processed")
    assert limiter.statistics().admitted == 0


def test_what_cannot_work_is_told_at_the_start() -> None:
    with pytest.raises(TypeError, match="need a limiter that is a RateLimiter, not a str"):
        LimitedActors("redis://localhost")  # type: ignore[arg-type]
