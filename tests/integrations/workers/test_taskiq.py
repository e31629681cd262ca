"""Tasks of taskiq under one limit, with a real broker and a real source of schedules."""

import asyncio
from datetime import timedelta

from taskiq import TaskiqDepends, TaskiqScheduler
from taskiq.cli.scheduler.run import SchedulerLoop
from taskiq.receiver import Receiver
from taskiq_redis import ListQueueBroker, ListRedisScheduleSource, RedisAsyncResultBackend

from batchlimit import AsyncRateLimiter
from batchlimit.integrations.taskiq import LimitedRun
from tests.servers import Server


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
