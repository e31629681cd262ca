"""What a limiter counted, by the entry of its quotas that a key went by."""

from dataclasses import replace
from typing import Any

import pytest

from batchlimit import RateLimited, Statistics
from batchlimit.base.histogram import BOUNDS
from batchlimit.stores import MemoryStore
from batchlimit.testing import frozen_limits
from tests.apis.blocking import Api
from tests.sync.stage import KEY, Clock, Stage, away


def test_a_limiter_counts_by_policy_whoever_decided(api: Api, clock: Clock, without_refresher: None) -> None:
    limiter = api(Stage(), {"user:*": "3/hour", "*": "1000/s burst 1000"}, clock=clock)
    for _ in range(5):
        limiter.try_acquire("user:ann")
    for number in range(300):
        limiter.try_acquire(f"once {number}")
    found = limiter.statistics().policies
    assert (found["user:*"].admitted, found["user:*"].refused) == (3, 2)
    assert (found["*"].admitted, found["*"].refused) == (300, 0)
    assert found["user:*"].low == found["user:*"].keys == 1
    limiter.close()
    closed = limiter.statistics().policies
    assert closed == {name: replace(each, keys=0, low=0) for name, each in found.items()}


def test_a_limiter_with_one_quota_counts_all_as_one(api: Api, clock: Clock) -> None:
    limiter = api(Stage(), "3/hour", clock=clock)
    assert [limiter.try_acquire("ann") for _ in range(5)].count(True) == 3
    found = limiter.statistics().policies
    assert list(found) == ["*"]
    assert (found["*"].admitted, found["*"].refused) == (3, 2)
    limiter.close()


def test_how_long_callers_wait_is_counted_by_policy(api: Api) -> None:
    limiter = api(Stage(), {"user:*": "1/s", "*": "1000/s"})
    with frozen_limits():
        assert limiter.try_acquire("user:ann")
        for _ in range(2):
            limiter.acquire("user:ann")
        assert not limiter.try_acquire("user:ann")
        limiter.try_acquire("other")
        found = limiter.statistics().policies
    waits = dict(zip(BOUNDS, found["user:*"].waits.up_to, strict=False))
    assert (waits[0.5], waits[2.5]) == (0, 2), "try_acquire waits for nothing"
    assert found["*"].waits.total == 0


def test_a_caller_that_cannot_be_served_in_time_has_not_waited_long(api: Api) -> None:
    limiter = api(Stage(), "1/s")
    with frozen_limits():
        limiter.acquire(KEY)
        with pytest.raises(RateLimited):
            limiter.acquire(KEY, timeout=0.5)
        found = limiter.statistics().policies["*"]
    assert (found.timed_out, found.by_store) == (1, 0)
    assert found.waits.up_to[0] == found.waits.total


def test_how_long_the_store_takes_is_counted_answer_or_not(api: Api, clock: Clock, without_refresher: None) -> None:
    stage = Stage()
    limiter = api(stage, "1000/s", clock=clock)
    for number in range(3):
        limiter.try_acquire(f"key {number}")
    assert limiter.statistics().durations.total == 3
    stage.before = stage.before_probe = away
    for number in range(10):
        limiter.try_acquire(f"key {number}")
    seen = limiter.statistics()
    assert (seen.available, seen.durations.total) == (False, 6), "while the circuit is open nothing is asked"


def test_a_call_that_waits_for_the_store_is_counted_as_a_call_that_waits(api: Api, clock: Clock) -> None:
    store, seen = MemoryStore(clock), list[Statistics]()
    spend = store.spend

    def seeing(*args: Any, **options: Any) -> Any:
        seen.append(limiter.statistics())
        return spend(*args, **options)

    store.spend = seeing  # type: ignore[method-assign]
    with api(store, "5/s", clock=clock) as limiter:
        assert limiter.try_acquire("ann")
        after = limiter.statistics()
    assert [(each.calls, each.waiting, each.admitted) for each in [*seen, after]] == [(1, 1, 0), (1, 0, 1)]


def test_of_what_decide_refuses_the_store_has_the_first_alone(api: Api, clock: Clock, without_refresher: None) -> None:
    with api(MemoryStore(clock), "2/hour", clock=clock) as limiter:
        told = [limiter.decide("ann").source for _ in range(6)]
        assert told == ["store"] * 3 + ["denied"] * 3
        found = limiter.statistics().policies["*"]
        assert (found.refused, found.by_store) == (4, 1)
