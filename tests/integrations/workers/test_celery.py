"""Tasks of Celery under one limit, with a real broker and real workers."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from celery import Celery
from celery.exceptions import Reject
from kombu.asynchronous.hub import Hub

from batchlimit import Quota, RateLimiter
from batchlimit.integrations.celery import FleetRates, LimitedTask
from batchlimit.integrations.task_limit import TIMES
from benchmarks.audited_fleet.audit import Admission, excess
from tests.integrations.workers.fleet import processes
from tests.nodes import await_fact
from tests.servers import any_binary, redis_server

APP = "tests.integrations.workers.celery_app"
QUIET = ["-l", "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat"]


def worker(name: str, pool: str, count: int = 4) -> list[str]:
    return ["celery", "-A", APP, "worker", "-n", f"{name}@test", "-P", pool, "-c", str(count), *QUIET]


@pytest.fixture
def store() -> Iterator[str]:
    with redis_server(any_binary()) as url:
        yield url


@pytest.fixture
def notes(store: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(store, decode_responses=True) as client:
        yield client


def sender(store: str) -> Celery:
    return Celery(broker=store.replace("unix://", "redis+socket://"))


def send(app: Celery, count: int) -> None:
    with app.connection_for_write() as connection:
        for number in range(count):
            app.send_task(f"{APP}.note", (number,), connection=connection)


def ran(notes: Any, count: int) -> list[list[str]]:
    await_fact(lambda: notes.llen("ran") >= count, f"{count} tasks ran")
    return [line.split() for line in notes.lrange("ran", 0, -1)]


def admissions(rows: list[list[str]]) -> list[Admission]:
    return [(float(began), float(admitted), 1) for began, admitted, *_ in rows]


def test_8_processes_admit_in_no_window_more_than_burst_and_rate(store: str, notes: Any, tmp_path: Path) -> None:
    with sender(store) as app, processes([worker("a", "prefork"), worker("b", "prefork")], tmp_path, STORE=store):
        send(app, 400)
        rows = ran(notes, 400)
    assert sorted(int(number) for _, _, number, *_ in rows) == list(range(400)), "each ran once"
    assert excess(admissions(rows), Quota(100.0, 10)) == 0.0
    assert {retries for *_, retries, _ in rows} == {"0"}, "max_retries is 0, and none of them failed"
    assert max(int(times) for *_, times, _, _ in rows) > 0, "some had to come again"


@pytest.mark.parametrize("pool", ["threads", "gevent", "solo"])
def test_other_pools_hold_it_too(pool: str, store: str, notes: Any, tmp_path: Path) -> None:
    with sender(store) as app, processes([worker("a", pool)], tmp_path, STORE=store, QUOTA="50/s burst 5"):
        send(app, 80)
        rows = ran(notes, 80)
    assert sorted(int(number) for _, _, number, *_ in rows) == list(range(80))
    assert excess(admissions(rows), Quota(50.0, 5)) == 0.0


def test_with_acks_late_each_task_runs_once_too(store: str, notes: Any, tmp_path: Path) -> None:
    with sender(store) as app, processes([worker("a", "prefork")], tmp_path, STORE=store, ACKS_LATE="1"):
        send(app, 60)
        rows = ran(notes, 60)
    assert sorted(int(number) for _, _, number, *_ in rows) == list(range(60))


def test_a_task_that_is_told_429_pauses_the_fleet(store: str, notes: Any, tmp_path: Path) -> None:
    with sender(store) as app, processes([worker("a", "prefork"), worker("b", "prefork")], tmp_path, STORE=store):
        app.send_task(f"{APP}.call", (4.0,))
        await_fact(lambda: notes.llen("paused") == 1, "the pause")
        for _ in range(20):
            app.send_task(f"{APP}.call", (0.0,))
        await_fact(lambda: notes.llen("called") == 21, "all were called")
    (paused,) = (float(each) for each in notes.lrange("paused", 0, -1))
    _, *after = sorted(float(line.split()[1]) for line in notes.lrange("called", 0, -1))
    assert after[0] >= paused + 4.0


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_by_the_bootstep_rate_limit_holds_over_the_fleet(pool: str, store: str, notes: Any, tmp_path: Path) -> None:
    with (
        sender(store) as app,
        processes([worker("a", pool), worker("b", pool)], tmp_path, STORE=store, QUOTA="40/s burst 5"),
    ):
        for number in range(100):
            app.send_task(f"{APP}.native", (number,))
        await_fact(lambda: notes.llen("native") >= 100, "all ran")
        rows = [line.split() for line in notes.lrange("native", 0, -1)]
        admitted = [line.split() for line in notes.lrange("spans", 0, -1)]
    assert sorted(int(number) for number, _ in rows) == list(range(100)), "each ran once, at 40/s and not 1/m"
    assert len(admitted) == 100
    assert excess(admissions(admitted), Quota(40.0, 5)) == 0.0


@pytest.fixture
def app() -> Celery:
    return Celery("test", broker="memory://")


def limited(app: Celery, **options: Any) -> Any:
    limiter = RateLimiter.from_url("memory://", "1/hour")

    @app.task(base=LimitedTask, bind=True, **{"limiter": limiter, **options})
    def greet(self: Any, name: str) -> str:
        return f"hello {name}"

    return greet


def test_a_task_that_is_called_or_run_eagerly_is_not_limited(app: Celery) -> None:
    task = limited(app)
    assert [task("ann"), task("ann")] == ["hello ann"] * 2
    assert [task.apply(("ann",)).get() for _ in range(2)] == ["hello ann"] * 2


def test_a_task_without_a_limiter_says_so(app: Celery) -> None:
    task = limited(app, limiter=None)
    with pytest.raises(ValueError, match=r"has no limiter: @app\.task"):
        task.before_start("id", ("ann",), {})


@pytest.mark.parametrize("key", ["greet:{name}", lambda name: f"greet:{name}"])
def test_the_key_may_name_the_tasks_arguments(app: Celery, key: Any) -> None:
    task = limited(app, limit_key=key)
    task.before_start("id", ("ann",), {})
    task.before_start("id", (), {"name": "bob"})
    assert task.limiter.statistics().keys == 2


@pytest.mark.parametrize("late", [True, False])
def test_a_task_that_cannot_be_sent_again_goes_back_to_the_broker_or_fails(
    app: Celery, monkeypatch: Any, late: bool
) -> None:
    task = limited(app, acks_late=late)
    task.before_start("id", ("ann",), {})

    def fail(*_args: object, **_options: object) -> None:
        raise OSError("away")

    monkeypatch.setattr(task, "apply_async", fail)
    with pytest.raises(Reject if late else OSError) as caught:
        task.before_start("id", ("ann",), {})
    assert getattr(caught.value, "requeue", False) is late


def test_a_task_that_comes_again_keeps_its_headers_and_options(app: Celery, monkeypatch: Any) -> None:
    task, sent = limited(app), []
    monkeypatch.setattr(task, "apply_async", lambda *args, **options: sent.append(options))
    task.before_start("id", ("ann",), {})
    task.push_request(
        id="one", retries=2, headers={"trace": "t", TIMES: 3}, args=("ann",), kwargs={}, called_directly=False
    )
    with pytest.raises(Exception, match="no token: back in"):
        task.before_start("one", ("ann",), {})
    (options,) = sent
    assert options["headers"] == {"trace": "t", TIMES: 4}
    assert (options["retries"], options["task_id"]) == (2, "one")
    assert 300.0 <= options["countdown"] <= 600.0, "an hour is longer than `limit_longest`"


def test_a_worker_with_many_tasks_that_wait_does_not_sleep_for_a_second() -> None:
    """Each of them has a timer, and kombu fires ten of them; then it would sleep, whatever is due."""

    class Rates(FleetRates):
        limiter = RateLimiter.from_url("memory://", "1/s")

    hub: Any = Hub()  # type: ignore[no-untyped-call]
    Rates(SimpleNamespace(hub=hub, reset_rate_limits=bool))
    fired: list[int] = []
    for each in range(25):
        hub.timer.call_after(0, fired.append, (each,))
    assert hub.fire_timers() == 0.01
    assert len(fired) == 10
    hub.close()


def test_a_worker_does_not_start_by_a_limiter_that_has_no_quota_for_a_task() -> None:
    class Rates(FleetRates):
        limiter = RateLimiter.from_url("memory://", {"shop.mail": "1/s"})

    def start(*tasks: Any) -> None:
        consumer = SimpleNamespace(hub=None)
        consumer.reset_rate_limits = lambda: [consumer.bucket_for_task(task) for task in tasks]
        Rates(consumer)

    mail, free = SimpleNamespace(name="shop.mail", rate_limit="1/s"), SimpleNamespace(name="shop.free")
    start(mail, free)
    with pytest.raises(ValueError, match=r"no quota for key 'shop\.call'"):
        start(mail, SimpleNamespace(name="shop.call", rate_limit="1/s"))
