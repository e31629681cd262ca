"""Calls for keys that are not in use, on both APIs: what they are told, what they charge, and what a fleet admits."""

import math
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from batchlimit import Quota, RateLimited, RateLimiter
from batchlimit.batching import BatchSizer, FixedBatch, TimeBatch
from batchlimit.bucket.messages import SpendReply
from batchlimit.stores import MemoryStore
from benchmarks.audited_fleet.audit import excess
from tests.apis.blocking import Api
from tests.servers import Server
from tests.sync.stage import DEADLINE, Clock, start

SLOW = 0.001
QUOTAS = {"user": Quota(SLOW, 5), "tenant": Quota(SLOW, 20), "global": Quota(SLOW, 100), "*": Quota(SLOW, 50)}


@pytest.fixture
def store(clock: Clock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture
def limiter(api: Api, store: MemoryStore, clock: Clock, without_refresher: None) -> Any:
    """Nothing is leased but what callers ask for."""
    return api(store, QUOTAS, sizer=FixedBatch(1), clock=clock)


@pytest.fixture
def leasing(api: Api, store: MemoryStore, clock: Clock, without_refresher: None) -> Any:
    """A limiter that leases ten tokens of "tenant" and "global", which are in use, and spends at "user"."""
    limiter = api(store, QUOTAS, sizer=_Tenths(), clock=clock)
    limiter.acquire("tenant")
    limiter.acquire("global")
    assert set(entries(limiter)) == {"tenant", "global"}
    return limiter


class _Tenths:
    """Leases ten tokens of a large bucket, and none ahead of a small one."""

    def want(self, usage: Any) -> int:
        return 10 if usage.quota.burst in (20, 100) else 0


def entries(limiter: Any) -> Any:
    return getattr(limiter, "_inner", limiter)._entries


def levels(store: MemoryStore, *keys: str) -> list[int]:
    return [store.peek(key, QUOTAS.get(key, QUOTAS["*"])).level for key in keys]


def told(decisions: dict[str, Any]) -> list[tuple[str, bool, int, str]]:
    return [(key, each.allowed, each.remaining, each.source) for key, each in decisions.items()]


def test_several_keys_that_are_not_in_use_are_charged_at_once(limiter: Any, store: MemoryStore) -> None:
    decisions = limiter.decide_all({"user": 1, "global": 3, "tenant": 2})
    assert told(decisions) == [
        ("user", True, 4, "store"),
        ("global", True, 97, "store"),
        ("tenant", True, 18, "store"),
    ]
    assert levels(store, "user", "global", "tenant") == [4, 97, 18]
    assert not entries(limiter)
    assert limiter.statistics().admitted == 6
    assert limiter.statistics().policies["user"].admitted == 1
    limiter.close()


def test_keys_in_use_pay_from_memory_and_the_others_at_the_store(leasing: Any, store: MemoryStore) -> None:
    decisions = leasing.decide_all({"tenant": 2, "user": 1, "global": 3})
    assert told(decisions) == [
        ("tenant", True, 17, "local"),
        ("user", True, 4, "store"),
        ("global", True, 96, "local"),
    ]
    assert levels(store, "user") == [4]
    assert "user" not in entries(leasing)
    leasing.close()
    assert levels(store, "user", "tenant", "global") == [4, 17, 96]


def test_a_refusal_names_the_short_key_and_its_wait_and_charges_nothing(
    leasing: Any, store: MemoryStore, clock: Clock
) -> None:
    leasing.acquire("user", 4)
    decisions: Any = None
    for costs in ({"tenant": 2, "user": 2, "other": 1}, {"other": 1, "user": 2, "tenant": 2}):
        decisions = leasing.decide_all(costs)
        assert [(key, each.allowed, each.remaining) for key, each in decisions.items()] == [("user", False, 1)]
        assert decisions["user"].retry_after == pytest.approx(1000.0)
    assert leasing.statistics().admitted == 6
    assert leasing.statistics().policies["user"].refused == 4
    leasing.close()
    assert levels(store, "tenant", "global", "user", "other") == [19, 99, 1, 50]
    clock.pass_by(decisions["user"].retry_after)
    assert levels(store, "user") == [2]


def test_tokens_whose_lease_ended_before_the_answer_admit_nobody(
    leasing: Any, store: MemoryStore, clock: Clock
) -> None:
    """The call is decided anew, and what was charged meanwhile comes back."""
    spend: Any = store.spend

    def slow(groups: Any, *, look: bool = False, within: float = math.inf) -> Any:
        store.spend = spend  # type: ignore[method-assign]
        clock.pass_by(60.0)
        return spend(groups, look=look, within=within)

    store.spend = slow  # type: ignore[method-assign]
    assert all(leasing.decide_all({"tenant": 2, "user": 1}).values())
    leasing.close()
    assert levels(store, "user") == [4]


def test_of_several_short_keys_the_first_is_named(limiter: Any, store: MemoryStore) -> None:
    limiter.acquire("user", 5)
    limiter.acquire("tenant", 20)
    assert list(limiter.decide_all({"global": 1, "tenant": 1, "user": 1})) == ["tenant"]
    assert levels(store, "global") == [100]
    limiter.close()


def test_a_key_in_use_that_is_short_is_refused_with_the_others_left_alone(leasing: Any, store: MemoryStore) -> None:
    leasing.acquire("tenant", 19)
    assert not leasing.try_acquire("tenant")
    assert list(leasing.decide_all({"user": 1, "tenant": 1})) == ["tenant"]
    assert levels(store, "user") == [5]
    leasing.close()


@pytest.mark.parametrize(
    ("costs", "error"),
    [
        ({"tenant": 1, "user": 6}, ValueError),
        ({"tenant": 1, "user": -1}, ValueError),
        ({"tenant": 1, "user": 1.0}, TypeError),
        ({"tenant": 1, "": 1}, ValueError),
        ({"tenant": 1, b"user": 1}, TypeError),
    ],
    ids=str,
)
def test_what_makes_no_sense_charges_nothing_and_leaves_nobody_waiting(
    limiter: Any, store: MemoryStore, costs: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        limiter.decide_all(costs)
    assert levels(store, "tenant", "user") == [20, 5]
    assert limiter.statistics().waiting == 0
    limiter.close()


def test_several_keys_are_acquired_and_refunded_after_spends(limiter: Any, store: MemoryStore) -> None:
    assert limiter.try_acquire("user", 2)
    limiter.acquire_all({"user": 3, "tenant": 1})
    with pytest.raises(RateLimited) as caught:
        limiter.acquire_all({"tenant": 1, "user": 1}, timeout=0)
    assert caught.value.key == "user"
    assert caught.value.retry_after == pytest.approx(1000.0)
    limiter.refund("user", 2)
    limiter.acquire("user", 2, timeout=0)
    limiter.close()
    assert levels(store, "user", "tenant") == [0, 19]


@pytest.mark.parametrize(
    ("spend", "level"),
    [
        (lambda limiter: limiter.try_acquire("user", 4) and limiter.refund("user", 3), 4),
        (lambda limiter: limiter.reserve("user", 4).settle(1), 4),
        (lambda limiter: limiter.reserve("user", 2).settle(4), 1),
    ],
    ids=["a refund", "a reservation of too much", "a reservation of too little"],
)
def test_a_spend_is_corrected_at_the_bucket(
    limiter: Any, store: MemoryStore, spend: Callable[[Any], object], level: int
) -> None:
    spend(limiter)
    limiter.close()
    assert levels(store, "user") == [level]


def test_a_lost_bucket_is_counted_and_begins_with_a_share(api: Api, clock: Clock, without_refresher: None) -> None:
    store = MemoryStore(clock)
    limiter: Any = api(store, Quota(SLOW, 10), sizer=FixedBatch(1), clock=clock, fill="empty")
    assert limiter.try_acquire("ann", 2)
    store._buckets.clear()
    clock.pass_by(0.1)
    assert not limiter.try_acquire("ann")
    assert limiter.statistics().losses == 1
    clock.pass_by(3000.0)
    assert limiter.try_acquire("ann", 3)
    limiter.close()


def test_a_server_that_lost_the_scripts_spends_all_the_same(api: Api, valkey: Server, prefix: str) -> None:
    ten = Quota(SLOW, 10)
    with valkey.client() as client, api.from_url(valkey.url, ten, prefix=prefix, sizer=FixedBatch(1)) as limiter:
        assert limiter.try_acquire("a")
        client.script_flush()
        assert limiter.decide("b").remaining == 9
        client.script_flush()
        assert {key: told.remaining for key, told in limiter.decide_all({"a": 1, "c": 2}).items()} == {"a": 8, "c": 8}
        assert not entries(limiter)


def test_limiters_that_lease_and_limiters_that_spend_admit_no_more_than_there_is(valkey: Server, prefix: str) -> None:
    """Of one key, at random. In no window more is admitted than the burst and what is refilled meanwhile.

    A call is charged between its beginning and its end, or leased before: whoever begins and ends within a window is
    counted. So no deadline comes on top. Each key begins with spends, until somebody leases of it.
    """
    quota, chance = Quota(100.0, 40), random.Random(7)
    sizers: list[BatchSizer] = [FixedBatch(10), FixedBatch(20), TimeBatch(), *[FixedBatch(1)] * 5]
    limiters = [RateLimiter.from_url(valkey.url, quota, prefix=prefix, sizer=each) for each in sizers]
    for key in map(str, range(12)):
        admitted: list[tuple[float, float, int]] = []
        callers = chance.sample(limiters, 6)
        plans = [[chance.choice((1, 1, 2)) for _ in range(20)] for _ in callers]
        jobs = [
            start(partial(_call, limiter, key, costs, admitted)) for limiter, costs in zip(callers, plans, strict=True)
        ]
        for each in jobs:
            each.result(DEADLINE)
        assert sum(cost for *_, cost in admitted) >= quota.burst // 2
        assert excess(admitted, quota) == 0.0
    for limiter in limiters:
        limiter.close()


def _call(limiter: RateLimiter, key: str, costs: list[int], admitted: list[tuple[float, float, int]]) -> None:
    for n, cost in enumerate(costs):
        began = time.monotonic()
        if limiter.decide_all({key: cost, f"own-{n}": 1} if n % 3 else {key: cost}).get(key):
            admitted.append((began, time.monotonic(), cost))


class _Slow(MemoryStore):
    """The first answer to a spend takes longer than anybody waits, by the limiter's clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.clock, self.took = clock, 3 * DEADLINE

    def spend(self, *args: Any, **options: Any) -> SpendReply:
        reply = super().spend(*args, **options)
        self.clock.now, self.took = self.clock.now + self.took, 0.0
        return reply


@pytest.mark.parametrize("costs", [{"user": 1}, {"user": 1, "tenant": 1}], ids=["one key", "two keys"])
def test_what_was_charged_by_an_answer_that_came_too_late_is_there_for_others(
    api: Api, clock: Clock, without_refresher: None, costs: dict[str, int]
) -> None:
    limiter: Any = api(_Slow(clock), QUOTAS, sizer=FixedBatch(1), clock=clock)
    assert [all(limiter.decide_all(costs).values()) for _ in range(6)] == [True] * 5 + [False]
    assert limiter.statistics().admitted == 5 * len(costs)
