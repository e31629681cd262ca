"""Jobs of procrastinate under one limit; its connector in memory stands for Postgres, and time stands still."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from procrastinate import App, RetryStrategy
from procrastinate.testing import InMemoryConnector

from batchlimit import AsyncRateLimiter
from batchlimit.integrations.procrastinate import LimitedJobs
from batchlimit.testing import FrozenLimits, frozen_limits

URL = "redis://192.0.2.1:1/0"
"""Nobody is there."""
QUOTAS = {"mail:*": "40/s burst 10", "*": "1/hour"}


@pytest.fixture
def frozen() -> Iterator[FrozenLimits]:
    with frozen_limits() as limits:
        yield limits


async def work(app: App, limits: LimitedJobs, jobs: dict[int, Any], frozen: FrozenLimits) -> None:
    """Have a worker do what is due, and let a token of 40/s come, until all is done."""
    while any(job["status"] in {"todo", "doing"} for job in jobs.values()):
        await app.run_worker_async(
            wait=False, worker_middleware=[limits], install_signal_handlers=False, listen_notify=False, concurrency=4
        )
        frozen.advance(0.025)


def test_each_job_runs_once_with_or_without_a_strategy_for_retries(frozen: FrozenLimits) -> None:
    ran: list[int] = []
    connector = InMemoryConnector()
    app = App(connector=connector)

    @app.task(name="mail", retry=RetryStrategy(max_attempts=1))
    async def mail(number: int, to: str) -> None:
        ran.append(number)

    @app.task(name="call", pass_context=True)
    def call(context: Any, number: int) -> None:
        ran.append(number)

    async def main() -> int:
        async with AsyncRateLimiter.from_url(URL, QUOTAS) as limiter, app.open_async():
            limits = LimitedJobs(limiter, {"mail": "mail:{to}", "call": "mail:ann"})
            for number in range(20):
                await mail.defer_async(number=number, to="ann")
                await call.defer_async(number=number + 20)
            await work(app, limits, connector.jobs, frozen)
            return limiter.statistics().admitted

    assert asyncio.run(main()) == 40
    assert sorted(ran) == list(range(40))
    assert {job["status"] for job in connector.jobs.values()} == {"succeeded"}
    assert max(job["attempts"] for job in connector.jobs.values()) > 1


async def test_a_job_that_fails_is_decided_on_by_its_own_strategy(frozen: FrozenLimits) -> None:
    connector = InMemoryConnector()
    app = App(connector=connector)

    @app.task(name="mail")
    async def mail(to: str) -> None:
        raise OSError("away")

    async with AsyncRateLimiter.from_url(URL, "40/s burst 1") as limiter, app.open_async():
        for _ in range(2):
            await mail.defer_async(to="ann")
        await work(app, LimitedJobs(limiter, {"mail": "mail:{to}"}), connector.jobs, frozen)
    assert {job["status"] for job in connector.jobs.values()} == {"failed"}
    assert max(job["attempts"] for job in connector.jobs.values()) > 1
