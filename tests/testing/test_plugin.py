"""The plugin costs nothing where it is not used, and its fixtures are there without an import."""

from pathlib import Path

import fakeredis
import pytest

from batchlimit import AsyncRateLimiter, Quota, RateLimiter
from batchlimit.stores import Ask, MemoryStore
from batchlimit.testing import fresh_prefix, isolated_limits
from tests.servers import Server
from tests.testing.suites import passed

_CONFTEST = """
import sys

def pytest_sessionfinish():
    print("imported", *sorted(name for name in sys.modules if name.startswith("batchlimit")))
"""


def run_pytest(tmp_path: Path, test: str, *arguments: str) -> str:
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    (tmp_path / "test_of_a_user.py").write_text(test)
    return passed(tmp_path, "-q", "-s", *arguments, str(tmp_path))


def test_no_module_of_batchlimit_is_imported_before_a_fixture_is_used(tmp_path: Path) -> None:
    said = run_pytest(tmp_path, "def test_nothing() -> None: pass")
    (line,) = [line for line in said.splitlines() if "imported" in line]
    assert line.split("imported")[1].split() == [
        "batchlimit",  # the packages that the plugin lies in, whose names are imported when they are asked for
        "batchlimit.base",
        "batchlimit.base.lazy",
        "batchlimit.testing",
        "batchlimit.testing.plugin",
    ]


def test_a_fixture_is_there_without_an_import(tmp_path: Path) -> None:
    run_pytest(
        tmp_path,
        """
def test_a_limit(frozen_limits):
    from batchlimit import RateLimiter
    limiter = RateLimiter.from_url("redis://192.0.2.1:1", "1/hour")
    assert [limiter.try_acquire("ann") for _ in range(2)] == [True, False]
""",
    )


def test_each_worker_of_xdist_has_prefixes_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # each worker would import all plugins of this machine
    run_pytest(
        tmp_path,
        """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_a_prefix(limit_prefix, worker_id, number):
    assert limit_prefix.startswith(f"test-{worker_id}-")
    assert worker_id.startswith("gw")
""",
        *("-p", "xdist", "-n", "2"),
        *("-p", "batchlimit.testing.plugin"),
    )


# Isolated limiters have buckets of their own on the store that they have, and get the old ones back


def spend(limiter: RateLimiter) -> int:
    return sum(limiter.try_acquire("ann") for _ in range(20))


def test_a_prefix_is_nobody_elses() -> None:
    assert fresh_prefix() != fresh_prefix()


def test_a_prefix_tells_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw7")
    assert fresh_prefix().startswith("test-gw7-")


def test_each_block_begins_with_full_buckets_and_leaves_the_others_alone(
    valkey: Server, limit_prefix: str, far_away: None
) -> None:
    with RateLimiter.from_url(valkey.url, "5/hour", prefix=limit_prefix) as before:
        assert spend(before) == 5
        for _ in range(2):
            with isolated_limits() as prefix:
                assert spend(before) == 5
                assert spend(RateLimiter.from_url(valkey.url, "5/hour", prefix=limit_prefix)) == 0
                assert spend(RateLimiter.from_url(valkey.url, "5/hour", prefix="another")) == 5
                assert valkey.client().exists(f"{{{prefix}:{limit_prefix}:ann}}")
        assert spend(before) == 0


def test_limiters_in_memory_are_isolated_too(far_away: None) -> None:
    limiter = RateLimiter.from_url("memory://", "5/hour")
    with isolated_limits():
        assert spend(limiter) == 5
    assert spend(limiter) == 5


async def test_limiters_of_tasks_are_isolated_too(far_away: None) -> None:
    limiter = AsyncRateLimiter(fakeredis.FakeAsyncRedis(), "1/hour")
    assert await limiter.try_acquire("ann")
    with isolated_limits():
        assert [await limiter.try_acquire("ann") for _ in range(2)] == [True, False]
    assert not await limiter.try_acquire("ann")


def test_a_lease_outlasts_a_machine_that_stalls() -> None:
    limiter = RateLimiter(MemoryStore(), "5/hour")
    with isolated_limits():
        grant = limiter._registry._opened.take("ann", Quota.parse("5/hour"), Ask("one", 1, need=1, queued=1, want=1))
    assert grant.lease >= 4.0
