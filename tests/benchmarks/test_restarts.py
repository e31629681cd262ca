"""What restarts lose is counted beside a plain bucket, and every request and every token is counted once."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from batchlimit import Quota
from benchmarks.audited_fleet.audit import excess
from benchmarks.restarts import Watch, plain_bucket, run
from tests.depth import depth
from tests.servers import Server

QUOTA = Quota.parse("10/s burst 2")


@pytest.mark.parametrize(
    ("answered", "admitted", "left"),
    [
        ([], 0, 2.0),
        ([0.0], 1, 1.0),
        ([0.0, 0.0, 0.0], 2, 0.0),
        ([0.0, 0.0, 0.1], 3, 0.0),
        ([0.0, 0.0, 9.0, 9.0, 9.0], 4, 0.0),
    ],
)
def test_a_plain_bucket_decides_when_an_answer_comes(answered: list[float], admitted: int, left: float) -> None:
    found, kept = plain_bucket(QUOTA, [(0.0, at, 200) for at in answered])
    assert found == admitted
    assert kept == pytest.approx(left)


def test_grants_are_counted_over_a_bucket_that_begins_anew() -> None:
    seen = [
        state(used=5, age=1.0),
        state(used=7, age=2.0),
        None,
        state(used=2, age=0.1),
        state(used=4, age=0.3, outstanding=3, level=6.0),
    ]
    admin: Any = SimpleNamespace(buckets=SimpleNamespace(get=lambda _key: seen.pop(0)))
    watch = Watch(admin, "key")
    while seen:
        asyncio.run(watch.look_once())
    assert watch.tell(11) == (0, 6.0)
    assert watch.tell(10) == (0, 7.0)
    assert watch.tell(6) == (2, 9.0)


def state(used: int, age: float, outstanding: int = 0, level: float = 0.0) -> Any:
    return SimpleNamespace(used=used, age=age, outstanding=outstanding, levels=(level,))


@pytest.mark.parametrize(
    "server", depth(["gunicorn gthread preload"], ["gunicorn gthread", "gunicorn sync", "uvicorn"])
)
def test_a_server_is_restarted_and_every_request_is_counted(server: str, valkey: Server) -> None:
    found = run(valkey.url, server, workers=2, rate=20, seconds=1.0, restarts=2)
    errors = found.errors.total() - found.errors["again"]
    assert len(found.answers) + errors == 40
    assert {status for _, _, status in found.answers} <= {200, 429, 503}
    assert found.admitted
    assert excess(found.admitted, found.quota) == 0
    assert found.left <= found.quota.burst
