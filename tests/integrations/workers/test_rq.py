"""Jobs of RQ under one limit, with real workers on a real Redis."""

from pathlib import Path
from typing import Any

import redis
import rq

from tests.integrations.workers.fleet import processes
from tests.nodes import await_fact
from tests.servers import any_binary, redis_server

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
