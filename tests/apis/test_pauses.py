"""A pause by code: nobody is admitted before its end, all are told it, and who waits is served at the rate then."""

import itertools
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from batchlimit import FailurePolicy, RateLimited, RateLimiter, StoreUnavailable
from batchlimit.admin import Admin
from batchlimit.stores import MemoryStore
from batchlimit.testing import AsyncFaultStore, FaultStore
from tests.apis.blocking import Api
from tests.depth import depth
from tests.nodes import await_fact
from tests.servers import Server, Servers
from tests.sync.stage import DEADLINE, Clock, start

KEY = "api.example.com"


@pytest.fixture
def limiter(api: Api, valkey: Server, prefix: str) -> Iterator[Any]:
    with api.from_url(valkey.url, "1000/s", prefix=prefix) as limiter:
        yield limiter


@pytest.fixture
def other(api: Api, valkey: Server, prefix: str) -> Iterator[Any]:
    """Another instance, as in another process."""
    with api.from_url(valkey.url, "1000/s", prefix=prefix) as limiter:
        yield limiter


@pytest.fixture
def faulty(api: Api) -> Any:
    return FaultStore() if api is RateLimiter else AsyncFaultStore()


def test_what_this_process_has_leased_is_not_spent_any_more(limiter: Any) -> None:
    while not limiter.statistics().held:
        limiter.acquire(KEY)
    limiter.pause(KEY, 3600)
    assert limiter.statistics().held == 0
    assert not limiter.try_acquire(KEY)
    assert not limiter.try_acquire(KEY, 5)


def test_all_that_ask_are_told_the_end(limiter: Any, other: Any) -> None:
    limiter.pause(KEY, 3600, why="429 of upstream")
    for each in (limiter, other):
        with pytest.raises(RateLimited) as refused:
            each.acquire(KEY, timeout=60)
        with pytest.raises(RateLimited) as several:
            each.acquire_all({KEY: 1, "b": 1}, timeout=60)
        told = [refused.value.retry_after, several.value.retry_after, each.decide(KEY).retry_after]
        told += [each.peek(KEY).retry_after, each.decide_all({KEY: 1, "b": 1})[KEY].retry_after]
        assert all(3500 < wait <= 3600.1 for wait in told), told
        decision = each.decide(KEY)
        assert decision.reset_after >= decision.retry_after


def test_another_process_that_has_leased_hears_with_its_next_request(limiter: Any, other: Any) -> None:
    other.acquire(KEY)
    limiter.pause(KEY, 3600)
    await_fact(lambda: not other.try_acquire(KEY), "it has spent what it leased, and asked")
    assert other.decide(KEY).retry_after > 3500


def test_the_pause_that_ends_later_counts(limiter: Any, other: Any) -> None:
    other.pause(KEY, 3600)
    limiter.pause(KEY, 1)
    assert limiter.decide(KEY).retry_after > 3500


def test_any_process_lifts_it(limiter: Any, other: Any) -> None:
    limiter.pause(KEY, 3600)
    assert other.resume(KEY)
    assert not other.resume(KEY)
    for each in (other, limiter):
        await_fact(partial(each.try_acquire, KEY), "it admits again")


def test_a_caller_that_waits_is_admitted_once_a_pause_is_over(limiter: Any, other: Any) -> None:
    limiter.pause(KEY, 3600)
    waiting = [start(lambda each=each: each.acquire(KEY, timeout=7200)) for each in (limiter, other)]  # type: ignore[misc]
    await_fact(lambda: limiter.statistics().waiting == other.statistics().waiting == 1, "they wait")
    limiter.resume(KEY)
    for each in waiting:
        each.result(DEADLINE)
    assert limiter.statistics().admitted == other.statistics().admitted == 1


def test_a_waiter_of_before_that_cannot_wait_so_long_is_refused_at_once(api: Api, clock: Clock) -> None:
    limiter = api(MemoryStore(clock), "1/hour", clock=clock)
    limiter.acquire(KEY)
    waiting = start(lambda: limiter.acquire(KEY, timeout=4000))
    await_fact(lambda: limiter.statistics().waiting == 1, "it waits")
    limiter.pause(KEY, 7200)
    with pytest.raises(RateLimited) as refused:
        waiting.result(DEADLINE)
    assert refused.value.retry_after == pytest.approx(7200 + 3600, abs=1)


def test_at_its_end_calls_begin_at_the_rate(api: Api, clock: Clock) -> None:
    limiter = api(MemoryStore(clock), "10/s", clock=clock)
    limiter.pause(KEY, 5)
    clock.pass_by(4.99)
    assert not limiter.try_acquire(KEY)
    clock.pass_by(0.02)
    assert not limiter.try_acquire(KEY), "it is over, and there is no burst"
    clock.pass_by(0.2)
    assert [limiter.try_acquire(KEY) for _ in range(4)] == [True, True, False, False]


def test_a_process_that_ends_a_pause_begins_at_the_rate_without_another_look(api: Api, clock: Clock) -> None:
    limiter = api(MemoryStore(clock), "10/s", clock=clock)
    limiter.pause(KEY, 60)
    assert not limiter.try_acquire(KEY)
    assert limiter.resume(KEY)
    clock.pass_by(0.11)
    assert [limiter.try_acquire(KEY) for _ in range(2)] == [True, False]


@pytest.mark.parametrize("policy", ["open", FailurePolicy.local(instances=1)], ids=["open", "local"])
def test_the_last_known_end_holds_while_the_store_is_away(api: Api, faulty: Any, policy: Any, clock: Clock) -> None:
    limiter = api(faulty, "10/s", on_failure=policy, clock=clock)
    limiter.acquire(KEY)
    limiter.pause(KEY, 60)
    faulty.down = True
    for seconds in (1.0, 30.0):
        clock.pass_by(seconds)
        assert not limiter.try_acquire(KEY)
        assert 20 < limiter.decide(KEY).retry_after < 60
    clock.pass_by(40.0)
    assert limiter.try_acquire(KEY)


def test_where_the_store_is_away_this_process_pauses_all_the_same(api: Api, faulty: Any, clock: Clock) -> None:
    limiter = api(faulty, "10/s", on_failure="open", clock=clock)
    limiter.acquire(KEY)
    faulty.down = True
    with pytest.raises(StoreUnavailable) as away:
        limiter.pause(KEY, 60)
    assert away.value.key == KEY
    assert not limiter.try_acquire(KEY)
    with pytest.raises(StoreUnavailable):
        limiter.resume(KEY)


def test_a_key_in_shadow_mode_admits_all_the_same(api: Api) -> None:
    limiter = api(MemoryStore(), "10/s", mode="shadow")
    limiter.pause(KEY, 60)
    assert limiter.try_acquire(KEY)
    assert limiter.statistics().shadow_refused == 1


def test_a_key_that_admits_nothing_is_not_paused(api: Api) -> None:
    limiter = api(MemoryStore(), "0/s")
    limiter.pause(KEY, 60)
    assert not limiter.resume(KEY)


@pytest.mark.parametrize(
    ("seconds", "why", "error"),
    [
        (0, "", ValueError),
        (-1, "", ValueError),
        (float("inf"), "", ValueError),
        (10**400, "", ValueError),
        (True, "", TypeError),
        ("5", "", TypeError),
        (5, "a\nb", ValueError),
    ],
)
def test_what_cannot_be_meant_is_an_error(api: Api, seconds: Any, why: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        api(MemoryStore(), "10/s").pause(KEY, seconds, why=why)


@pytest.mark.parametrize("seconds", [1e11, 1e300, 1e305, 10**308])
def test_a_pause_lasts_ten_years_at_most(api: Api, limiter: Any, faulty: Any, clock: Clock, seconds: Any) -> None:
    """Also where the store is away."""
    faulty.down = True
    away = api(faulty, "10/s", clock=clock)  # it asks anew after half a second
    with pytest.raises(StoreUnavailable):
        away.pause(KEY, seconds)
    limiter.pause(KEY, seconds)
    for each in (limiter, away):
        assert each.decide(KEY).retry_after == pytest.approx(315_360_000, abs=60)


def test_the_handle_of_a_key_pauses_it() -> None:
    handle = RateLimiter(MemoryStore(), "10/s").bucket(KEY)
    handle.pause(60)
    assert not handle.try_acquire()
    assert handle.resume()


# A hold of an operator: callers are told its end, wait for it if their timeout allows, and hear if it is lifted
HELD = "export:ann"
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
        await_fact(lambda: not limiter.try_acquire(HELD), "the limiter heard of the hold")
        yield limiter


def test_a_refused_caller_is_told_the_end_of_the_hold(held: Any, admin: Admin) -> None:
    (hold,) = admin.overrides()
    assert hold.until is not None
    left = hold.until - admin.clock()
    with pytest.raises(RateLimited) as refused:
        held.acquire(HELD, timeout=60.0)
    with pytest.raises(RateLimited) as several:
        held.acquire_all({HELD: 1, "export:bob": 1}, timeout=60.0)
    decisions = held.decide(HELD), held.peek(HELD), held.decide_all({HELD: 1, "export:bob": 1})[HELD]
    waits = [refused.value.retry_after, several.value.retry_after, *(each.retry_after for each in decisions)]
    assert max(waits) <= left + 1.0
    assert min(waits) >= hold.until - admin.clock() - 1.0
    admin.hold(HELD, None)
    await_fact(lambda: held.decide(HELD).retry_after == math.inf, "it heard of one without an end")


def test_a_caller_waits_through_a_hold_if_its_timeout_allows(held: Any, admin: Admin) -> None:
    admin.set("export:*", "0/s", until=1.0)
    await_fact(lambda: bool(held.decide(HELD).retry_after < 60.0), "it heard of the other end")
    held.acquire(HELD, timeout=60.0)
    assert held.rules.explain(HELD).override is None


@pytest.mark.parametrize("how", depth(["open"], ["open", "unset"]))
def test_a_caller_that_waits_through_a_hold_hears_if_it_is_lifted(held: Any, admin: Admin, how: str) -> None:
    waiting = start(lambda: held.acquire(HELD, timeout=2 * HOUR))
    await_fact(lambda: held.statistics().waiting == 1, "it waits")
    if how == "unset":
        admin.unset("export:*")
    else:
        admin.open("export:*", "1h")
    waiting.result(DEADLINE)
    assert held.statistics().waiting == 0


def test_a_process_that_asks_for_nothing_else_hears_that_a_hold_is_lifted(held: Any, admin: Admin) -> None:
    admin.unset("export:*")
    await_fact(lambda: bool(held.try_acquire(HELD)), "it admits again")


def test_calls_that_each_come_with_another_key_hear_that_a_hold_is_lifted(held: Any, admin: Admin) -> None:
    """No reservoir is asked twice: it retires before, as that of a key that is asked for every two seconds does."""
    users = (f"export:{number}" for number in itertools.count())
    assert not held.try_acquire(next(users))
    admin.unset("export:*")
    await_fact(lambda: held.try_acquire(next(users)), "it heard of the end")
