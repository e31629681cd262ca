"""While a hold lasts callers are told its end, wait for it if their timeout allows, and hear if it is lifted."""

import itertools
import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from batchlimit import RateLimited
from batchlimit.admin import Admin
from tests.apis.blocking import Api
from tests.depth import depth
from tests.nodes import await_fact
from tests.servers import Server, Servers

KEY = "export:ann"
HOUR = 3600.0


@pytest.fixture
def server(servers: Servers) -> Server:
    """One is enough: no script knows of holds."""
    return servers.get("valkey")


@pytest.fixture
def admin(server: Server, prefix: str) -> Iterator[Admin]:
    with Admin.from_url(server.url, prefix=prefix) as admin:
        yield admin


@pytest.fixture
def held(api: Api, server: Server, prefix: str, admin: Admin) -> Iterator[Any]:
    """A limiter that has heard of a hold of an hour, and whose every key is held."""
    with api.from_url(server.url, "1000/s", prefix=prefix) as limiter:
        admin.hold("export:*", "1h")
        await_fact(lambda: not limiter.try_acquire(KEY), "the limiter heard of the hold")
        yield limiter


def test_a_refused_caller_is_told_the_end_of_the_hold(held: Any, admin: Admin) -> None:
    (hold,) = admin.overrides()
    assert hold.until is not None
    left = hold.until - admin.clock()
    with pytest.raises(RateLimited) as refused:
        held.acquire(KEY, timeout=60.0)
    with pytest.raises(RateLimited) as several:
        held.acquire_all({KEY: 1, "export:bob": 1}, timeout=60.0)
    decisions = held.decide(KEY), held.peek(KEY), held.decide_all({KEY: 1, "export:bob": 1})[KEY]
    waits = [refused.value.retry_after, several.value.retry_after, *(each.retry_after for each in decisions)]
    assert max(waits) <= left + 1.0
    assert min(waits) >= hold.until - admin.clock() - 1.0
    admin.hold(KEY, None)
    await_fact(lambda: held.decide(KEY).retry_after == math.inf, "it heard of one without an end")


def test_a_caller_waits_through_a_hold_if_its_timeout_allows(held: Any, admin: Admin) -> None:
    admin.set("export:*", "0/s", until=1.0)
    await_fact(lambda: bool(held.decide(KEY).retry_after < 60.0), "it heard of the other end")
    held.acquire(KEY, timeout=60.0)
    assert held.rules.explain(KEY).override is None


@pytest.mark.parametrize("how", depth(["open"], ["open", "unset"]))
def test_a_caller_that_waits_through_a_hold_hears_if_it_is_lifted(held: Any, admin: Admin, how: str) -> None:
    waiting = threading.Thread(target=lambda: held.acquire(KEY, timeout=2 * HOUR))
    waiting.start()
    await_fact(lambda: held.statistics().waiting == 1, "it waits")
    if how == "unset":
        admin.unset("export:*")
    else:
        admin.open("export:*", "1h")
    await_fact(lambda: not waiting.is_alive(), "it was admitted")
    assert held.statistics().waiting == 0


def test_a_process_that_asks_for_nothing_else_hears_that_a_hold_is_lifted(held: Any, admin: Admin) -> None:
    admin.unset("export:*")
    await_fact(lambda: bool(held.try_acquire(KEY)), "it admits again")


def test_calls_that_each_come_with_another_key_hear_that_a_hold_is_lifted(held: Any, admin: Admin) -> None:
    """No reservoir is asked twice: it retires before, as that of a key that is asked for every two seconds does."""
    users = (f"export:{number}" for number in itertools.count())
    assert not held.try_acquire(next(users))
    admin.unset("export:*")
    await_fact(lambda: held.try_acquire(next(users)), "it heard of the end")
