"""Jobs of arq under one limit, on a real Redis."""

import asyncio
from typing import Any, assert_type

import pytest
from arq import create_pool, func
from arq.connections import RedisSettings
from arq.worker import Worker

from batchlimit import AsyncRateLimiter
from batchlimit.integrations.arq import limited
from tests.servers import Server


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
