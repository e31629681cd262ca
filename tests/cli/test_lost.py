"""After the store has lost its overrides the commands say what processes obey, and `unset` ends it."""

import json
from collections.abc import Iterator

import pytest
import redis

from batchlimit import RateLimiter
from batchlimit.admin import Admin
from tests.cli.conftest import Run
from tests.servers import Server
from tests.sync.stage import until

KEY = "ann"


@pytest.fixture
def fleet(valkey: Server, prefix: str) -> Iterator[list[RateLimiter]]:
    """Two limiters that serve a key."""
    made = [RateLimiter.from_url(valkey.url, "1000/s", prefix=prefix) for _ in range(2)]
    yield made
    for each in made:
        each.close()


def lose(valkey: Server, prefix: str) -> None:
    """Lose what FLUSHALL loses of this prefix: other tests use the server."""
    with redis.Redis.from_url(valkey.url) as client:
        client.delete(*client.keys(f"{{{prefix}:*"))


def obeys(limiter: RateLimiter, quota: str) -> bool:
    """Have it ask, and return whether it obeys a quota."""
    limiter.try_acquire(KEY)
    return str(limiter.rules.explain(KEY).quota) == quota


@pytest.mark.parametrize("ending", [["unset", KEY], ["unset", "--all"]])
def test_lost_overrides_are_told_and_end_by_unset(
    run: Run, fleet: list[RateLimiter], valkey: Server, prefix: str, ending: list[str]
) -> None:
    run("set", "*", "40/s", "--yes")
    for each in fleet:
        until(lambda each=each: obeys(each, "40/s"))  # type: ignore[misc]
    lose(valkey, prefix)
    for each in fleet:
        until(lambda each=each: obeys(each, "40/s") and each.rules.failures > 0)  # type: ignore[misc]
    assert "which the store has lost" in run("rules").stderr
    assert "which the store has lost" in json.loads(run("get", KEY, "-o", "json").stdout)["override"]
    findings = json.loads(run("doctor", "-o", "json").stdout)
    assert [each["verdict"] for each in findings if each["check"] == "overrides"] == ["fail"]
    assert "none of these was set" in run(*ending).stderr
    for each in fleet:
        until(lambda each=each: obeys(each, "1000/s"))  # type: ignore[misc]
    until(lambda: fleet[0].try_acquire(KEY) and "lost" not in run("rules").stderr)


def test_unset_of_what_is_not_there_removes_nothing_else(run: Run, valkey: Server, prefix: str) -> None:
    run("set", "bob", "5/s")
    with Admin.from_url(valkey.url, prefix=prefix) as admin:
        before = admin.overrides()
        assert admin.unset(KEY) == ()
        assert ([*admin.overrides()], admin.overrides().revision > before.revision) == ([*before], True)
