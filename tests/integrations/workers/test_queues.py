"""Jobs of arq, taskiq, RQ, dramatiq and procrastinate under one limit."""

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, assert_type

import dramatiq
import pytest
import redis
import rq
from arq import create_pool, func
from arq.connections import RedisSettings
from arq.worker import Worker
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import ResultFailure, Results
from dramatiq.results.backends import RedisBackend
from procrastinate import App, RetryStrategy
from procrastinate.testing import InMemoryConnector
from taskiq import TaskiqDepends, TaskiqScheduler
from taskiq.cli.scheduler.run import SchedulerLoop
from taskiq.receiver import Receiver
from taskiq_redis import ListQueueBroker, ListRedisScheduleSource, RedisAsyncResultBackend

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.integrations.arq import limited
from batchlimit.integrations.dramatiq import LimitedActors
from batchlimit.integrations.procrastinate import LimitedJobs
from batchlimit.integrations.task_limit import TIMES
from batchlimit.integrations.taskiq import LimitedRun
from batchlimit.testing import FrozenLimits, frozen_limits
from tests.integrations.workers.fleet import processes
from tests.nodes import await_fact
from tests.servers import Server, any_binary, redis_server


@pytest.mark.filterwarnings("ignore:Call to deprecated close:DeprecationWarning")  # by arq itself
def test_each_job_runs_once_and_none_of_its_tries_is_used_up(valkey: Server, prefix: str) -> None:
    ran: list[tuple[int, int]] = []

    async def main() -> int:
        pool = await create_pool(
            RedisSettings(unix_socket_path=valkey.url.removeprefix("unix://")), default_queue_name=prefix
        )
        async with AsyncRateLimiter.from_url(
            valkey.url, {"mail:*": "40/s burst 20", "*": "1/hour"}, prefix=prefix
        ) as limiter:

            @limited(limiter, "mail:{to}")
            async def mail(ctx: dict[str, Any], number: int, to: str) -> None:
                ran.append((number, ctx["job_try"]))

            jobs = [await pool.enqueue_job("mail", number, to="ann") for number in range(60)]
            worker = Worker(
                [func(mail, name="mail", max_tries=1)],
                queue_name=prefix,
                redis_pool=pool,
                burst=True,
                poll_delay=0.1,
                handle_signals=False,
            )
            await worker.async_run()
            assert all([await job.result(timeout=60, poll_delay=0.01) is None for job in jobs if job])
            admitted = limiter.statistics().admitted
            await worker.close()
            return admitted

    assert asyncio.run(main()) == 60
    assert sorted(ran) == [(number, 1) for number in range(60)]


def test_a_job_keeps_its_types() -> None:
    @limited(AsyncRateLimiter.from_url("memory://", "1/s"))
    async def double(context: dict[Any, Any], number: int) -> int:
        return 2 * number

    assert assert_type(asyncio.run(double({}, 2)), int) == 4


# Tasks of taskiq, with a real source of schedules
def test_each_task_runs_once_and_its_result_comes_when_it_ran(valkey: Server, prefix: str) -> None:
    ran: list[int] = []

    async def main() -> int:
        results = RedisAsyncResultBackend[int](valkey.url, prefix_str=f"{prefix}-results")
        broker = ListQueueBroker(valkey.url, queue_name=prefix).with_result_backend(results)
        source = ListRedisScheduleSource(valkey.url, prefix=f"{prefix}-schedule")
        limiter = AsyncRateLimiter.from_url(valkey.url, {"mail:*": "20/s burst 20", "*": "1/hour"}, prefix=prefix)

        @broker.task(task_name="mail")
        async def mail(
            number: int, to: str, _: None = TaskiqDepends(LimitedRun(limiter, "mail:{to}", source=source))
        ) -> int:
            ran.append(number)
            return number

        await broker.startup()
        finish, receiver = asyncio.Event(), Receiver(broker, max_async_tasks=10, run_startup=False)
        listening = asyncio.create_task(receiver.listen(finish))
        scheduler = TaskiqScheduler(broker, [source])
        await scheduler.startup()
        sending = asyncio.create_task(
            SchedulerLoop(scheduler).run(update_interval=timedelta(seconds=0.1), loop_interval=timedelta(seconds=0.1))
        )
        tasks = [await mail.kiq(number, to="ann") for number in range(40)]
        told = [await task.wait_result(timeout=100, check_interval=0.01) for task in tasks]
        assert [each.return_value for each in told] == list(range(40))
        admitted = limiter.statistics().admitted
        sending.cancel()
        finish.set()
        await asyncio.gather(listening, sending, return_exceptions=True)
        await source.shutdown()
        await broker.shutdown()
        await limiter.close()
        return admitted

    assert asyncio.run(main()) == 40
    assert sorted(ran) == list(range(40))


# Jobs of RQ, with real workers on a real Redis
APP = "tests.integrations.workers.rq_app"


def worker(store: str) -> list[str]:
    return ["rq.cli", "worker", "-w", f"{APP}.Mailer", "--with-scheduler", "--url", store, "--quiet"]


def test_each_job_runs_once_and_none_of_its_retries_is_used_up(tmp_path: Path) -> None:
    with (
        redis_server(any_binary()) as store,
        redis.Redis.from_url(store) as client,
        processes([worker(store), worker(store)], tmp_path, STORE=store),
    ):
        notes: Any = client
        queue = rq.Queue(connection=client)
        options: Any = {"retry": rq.Retry(max=2), "meta": {"limit_key": "mail:ann"}}
        jobs = [queue.enqueue(f"{APP}.mail", number, **options) for number in range(15)]
        await_fact(lambda: notes.llen("ran") >= 15, "all ran")
        await_fact(lambda: all(job.get_status(refresh=True) == "finished" for job in jobs), "all are finished")
        rows = [line.decode().split() for line in notes.lrange("ran", 0, -1)]
    assert sorted(int(number) for number, _, _ in rows) == list(range(15))
    assert max(int(times) for _, times, _ in rows) > 0
    assert {left for *_, left in rows} == {"2"}


def test_a_job_that_cannot_be_limited_fails_and_its_worker_goes_on(tmp_path: Path) -> None:
    wrong: list[dict[str, object]] = [{"limit_key": 7}, {"limit_key": "mail:ann", "limit_cost": 99}]
    with (
        redis_server(any_binary()) as store,
        redis.Redis.from_url(store) as client,
        processes([worker(store)], tmp_path, STORE=store),
    ):
        queue = rq.Queue(connection=client)
        jobs = [queue.enqueue(f"{APP}.mail", 0, meta=meta) for meta in [*wrong, {"limit_key": "mail:ann"}]]
        await_fact(lambda: jobs[-1].get_status(refresh=True) == "finished", "the worker goes on")
        assert [job.get_status(refresh=True) for job in jobs] == ["failed", "failed", "finished"]
        assert "99 tokens never fit" in (jobs[1].latest_result().exc_string or "")  # type: ignore[union-attr]


# Actors of dramatiq, with a real broker
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


def test_each_message_is_processed_once_and_uses_up_no_retry(broker: RedisBroker, limiter: RateLimiter) -> None:
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


# Jobs of procrastinate; its connector in memory stands for Postgres, and time stands still
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


@pytest.mark.parametrize("name", ["mail", "post"])
def test_each_job_runs_once_with_or_without_a_strategy_for_retries(frozen: FrozenLimits, name: str) -> None:
    ran: list[int] = []
    connector = InMemoryConnector()
    app = App(connector=connector)

    @app.task(name="mail", aliases=["post"], retry=RetryStrategy(max_attempts=1))
    async def mail(number: int, to: str) -> None:
        ran.append(number)

    @app.task(name="call", pass_context=True)
    def call(context: Any, number: int) -> None:
        ran.append(number)

    async def main() -> int:
        async with AsyncRateLimiter.from_url(URL, QUOTAS) as limiter, app.open_async():
            limits = LimitedJobs(limiter, {name: "mail:{to}", "call": "mail:ann"})
            for number in range(20):
                await mail.defer_async(number=number, to="ann")
                await call.defer_async(number=number + 20)
            for job in connector.jobs.values():
                if job["task_name"] == "mail" and (job["id"] == 1 or name == "post"):
                    job["task_name"] = "post"  # as it was once
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
