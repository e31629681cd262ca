"""Several keys at once: all of them are charged, or none, and nobody waits for ever."""

import math
import random
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from batchlimit import FailurePolicy, LimiterClosed, Quota, RateLimited, RateLimiter, StoreUnavailable
from batchlimit.batching import BatchSizer, FixedBatch, TimeBatch
from batchlimit.bucket.messages import SpendReply
from batchlimit.quota.lookup import quota_rule
from batchlimit.stores import MemoryStore
from batchlimit.stores.client.scripts import bucket_name
from benchmarks.audited_fleet.audit import excess
from tests.apis.blocking import Api
from tests.reservoir.world import figures
from tests.servers import Server
from tests.sync.stage import DEADLINE, Clock, Stage, away, quiet, start, together, until

SLOW = 0.001
QUOTAS = {"user": Quota(SLOW, 5), "tenant": Quota(SLOW, 20), "global": Quota(SLOW, 100)}


@pytest.fixture
def limiter(api: Api, stage: Stage, clock: Clock, without_refresher: None) -> Any:
    """Three keys, and no more leased than callers ask for."""
    return api(stage, QUOTAS, sizer=FixedBatch(1), clock=clock)


def is_short(limiter: Any, key: str) -> bool:
    """Whether somebody waits at this key, having asked in vain."""
    entry = getattr(limiter, "_inner", limiter)._entries.get(key)
    return entry is not None and figures(entry.reservoir).waiting == 1 and quiet(limiter, key)


def levels(limiter: Any) -> list[int]:
    """What is left of each key, in the bucket and here."""
    return [limiter.peek(key).remaining for key in QUOTAS]


def test_all_are_charged_and_a_decision_tells_of_each(limiter: Any) -> None:
    limiter.acquire_all({"user": 1, "tenant": 2, "global": 3})
    assert levels(limiter) == [4, 18, 97]
    decisions = limiter.decide_all({"user": 1, "tenant": 2, "global": 3})
    told = {key: (each.allowed, each.limit, each.remaining) for key, each in decisions.items()}
    assert told == {"user": (True, 5, 3), "tenant": (True, 20, 16), "global": (True, 100, 94)}
    assert levels(limiter) == [3, 16, 94]
    assert (limiter.statistics().admitted, limiter.statistics().policies["user"].admitted) == (12, 2)


def test_one_key_is_decided_as_decide_does(limiter: Any) -> None:
    assert all(limiter.decide_all({"user": 1}).values())
    (refused,) = limiter.decide_all({"user": 5}).values()
    assert (refused.allowed, refused.retry_after) == (False, limiter.decide("user", 5).retry_after)
    assert levels(limiter) == [4, 20, 100]


def test_pairs_are_as_good_as_a_mapping(limiter: Any) -> None:
    limiter.acquire_all([("user", 1), ("global", 3)])
    limiter.acquire_all(iter([("user", 1)]))
    assert levels(limiter) == [3, 20, 97]


@pytest.mark.parametrize("order", [("user", "tenant", "global"), ("global", "tenant", "user")])
@pytest.mark.parametrize("warm", [True, False])
def test_if_one_is_short_none_is_charged(limiter: Any, order: tuple[str, ...], warm: bool) -> None:
    limiter.acquire("user", 5)
    if warm:  # then the refusal is known by memory
        assert not limiter.try_acquire("user")
    decisions = limiter.decide_all(dict.fromkeys(order, 1))
    assert [(key, each.allowed, each.remaining) for key, each in decisions.items()] == [("user", False, 0)]
    with pytest.raises(RateLimited) as caught:
        limiter.acquire_all(dict.fromkeys(order, 1), timeout=0)
    assert caught.value.key == "user"
    assert caught.value.retry_after == decisions["user"].retry_after == pytest.approx(1 / SLOW)
    assert levels(limiter) == [0, 20, 100]
    assert limiter.statistics().admitted == 5
    limiter.acquire("tenant", 20, timeout=0)
    limiter.acquire("global", 100, timeout=0)


def test_what_is_refused_by_memory_asks_nobody(limiter: Any, stage: Stage) -> None:
    limiter.acquire("user", 5)
    assert not limiter.try_acquire("user")
    before, refused = len(stage.asks), limiter.statistics().refused
    for _ in range(5):
        with pytest.raises(RateLimited):
            limiter.acquire_all({"global": 1, "tenant": 1, "user": 1}, timeout=0)
    assert limiter.decide_all({"user": 1})["user"].source == "denied"
    assert (len(stage.asks), limiter.statistics().refused) == (before, refused + 6)


def test_a_caller_that_is_short_waits_holding_nothing(limiter: Any) -> None:
    limiter.acquire("user", 5)
    waiter = start(lambda: limiter.acquire_all({"global": 60, "tenant": 10, "user": 1}))
    until(lambda: is_short(limiter, "user"))
    limiter.acquire_all({"global": 60, "tenant": 15}, timeout=0)
    limiter.refund("user")
    until(lambda: is_short(limiter, "global"))
    limiter.refund("tenant", 10)
    limiter.refund("global", 60)
    waiter.result(DEADLINE)
    assert levels(limiter) == [0, 5, 40]


def test_a_failing_store_charges_nothing(limiter: Any, stage: Stage) -> None:
    def fail() -> None:
        if stage.asks[-1].need == 7:
            raise StoreUnavailable("away")

    stage.before = fail
    with pytest.raises(StoreUnavailable):
        limiter.acquire_all({"user": 1, "global": 7, "tenant": 2})
    assert levels(limiter) == [5, 20, 100]
    assert limiter.statistics().admitted == 0


@pytest.mark.parametrize("warm", [False, True])
def test_a_lease_over_before_all_are_there_is_taken_anew(limiter: Any, stage: Stage, clock: Clock, warm: bool) -> None:
    """The store takes so long over the second key that the tokens of the first have expired."""

    def dawdle() -> None:
        if stage.asks[-1].need == 2:
            clock.now += 5.0
            stage.before = lambda: None

    stage.before = dawdle
    if warm:
        limiter.acquire("global", 0)  # the key is in use: what is refunded stays here
        limiter.acquire("global")
        limiter.refund("global")
    limiter.acquire_all({"user": 2, "global": 1})
    assert limiter.statistics().admitted == 3 + warm
    assert [ask.need for ask in stage.asks].count(1) == 2
    assert levels(limiter) == [1, 20, 98]  # what expired is lost, and nobody spent it


def test_nothing_is_charged_where_nothing_is_asked_for(limiter: Any) -> None:
    limiter.acquire_all({})
    limiter.acquire_all({"user": 0})
    assert (limiter.decide_all({}), levels(limiter)) == ({}, [5, 20, 100])
    limiter.acquire("user", 5)
    assert all(limiter.decide_all({"user": 0, "global": 1}).values())


def test_close_wakes_who_waits(limiter: Any) -> None:
    limiter.acquire("user", 5)
    waiter = start(lambda: limiter.acquire_all({"global": 1, "user": 1}))
    until(lambda: limiter.statistics().waiting == 1)
    limiter.close()
    with pytest.raises(LimiterClosed):
        waiter.result(DEADLINE)
    for call in (limiter.acquire_all, limiter.decide_all):
        with pytest.raises(LimiterClosed):
            call({"global": 1})


@pytest.mark.parametrize(
    ("costs", "error", "message"),
    [
        ([("user", 1), ("user", 2)], ValueError, "key 'user' is named twice: add up its costs"),
        ([("user", 1), "global"], TypeError, "or as such pairs, not with 'global'"),
        ("user", TypeError, "several keys come as a mapping from key to cost, not as 'user'"),
        (None, TypeError, "several keys come as a mapping from key to cost, not as None"),
        ({"user"}, TypeError, "or as such pairs, not with 'user'"),
        ({"user": 1, "": 1}, ValueError, "a key must not be empty"),
        ({"user": 1, b"a": 1}, TypeError, "a key must be a str, not b'a'; decode it first"),
        ({"global": 1, "user": 6}, ValueError, "6 tokens never fit a burst of 5: key 'user'"),
        ({"global": 1, "user": -1}, ValueError, "cost must be at least 0 tokens, not -1"),
        ({"global": 1, "user": 1.5}, TypeError, r"cost must be a whole number of tokens, not 1\.5"),
        ({"global": 1, "user": True}, TypeError, "not True"),
        ({"global": 1, "nobody": 1}, ValueError, "no quota for key 'nobody'"),
    ],
)
def test_senseless_costs_are_named_and_charge_nothing(limiter: Any, costs: Any, error: Any, message: str) -> None:
    for call in (limiter.acquire_all, limiter.decide_all):
        with pytest.raises(error, match=message):
            call(costs)
        assert levels(limiter) == [5, 20, 100]
        limiter.acquire("global", 0)  # in use from now on: it is asked for first


def test_callers_who_name_the_same_keys_in_another_order_all_get_through(api: Api, valkey: Server, prefix: str) -> None:
    """Where each held one key and waited for the other's, none would: the bursts are of one token."""
    quotas = {"a": "200/s burst 1", "b": "200/s burst 1"}
    orders: list[Mapping[str, int]] = [{"a": 1, "b": 1}, {"b": 1, "a": 1}]
    turns = iter(range(8))
    with api.from_url(valkey.url, quotas, prefix=prefix, connect_timeout=30.0, deadline=30.0) as limiter:

        def work() -> None:
            mine = orders[next(turns) % 2]
            for _ in range(10):
                limiter.acquire_all(mine)

        together(8, work)
        assert limiter.statistics().admitted == 160


def test_a_caller_that_wants_several_busy_keys_comes_through(api: Api) -> None:
    """Each key has callers who take every token that is refilled: its turn at one was once in vain at the other."""
    with api(MemoryStore(), "50/s burst 5") as limiter:
        stop = threading.Event()

        def take(key: str) -> None:
            while not stop.is_set():
                limiter.acquire(key)

        busy = [start(lambda key=key: take(key)) for key in ("a", "b") for _ in range(3)]  # type: ignore[misc]
        try:
            for _ in range(3):
                limiter.acquire_all({"b": 1, "a": 1}, timeout=DEADLINE)
        finally:
            stop.set()
        for each in busy:
            each.result(DEADLINE)


@pytest.mark.parametrize("batch", [1, 20], ids=["by the store", "from memory"])
def test_many_callers_admit_no_more_than_there_is(api: Api, clock: Clock, batch: int) -> None:
    """All or nothing: each key has paid as often as callers got through, and refusals lost nothing."""
    store = MemoryStore(clock)
    with api(store, {"a": Quota(SLOW, 300), "b": Quota(SLOW, 200)}, sizer=FixedBatch(batch), clock=clock) as limiter:

        def work() -> int:
            return sum(all(limiter.decide_all(({"a": 1, "b": 1}, {"b": 1, "a": 1})[i % 2]).values()) for i in range(60))

        through = sum(together(8, work))
        while all(limiter.decide_all({"a": 1, "b": 1}).values()):
            through += 1
        assert through == 200
        assert sum(limiter.try_acquire("a") for _ in range(101)) == 100


@pytest.mark.parametrize(
    ("costs", "left"),
    [
        ({"tenant": 1}, {"tenant": 18}),
        ({"tenant": 1, "global": 1}, {"tenant": 18, "global": 98}),
        ({"global": 3, "tenant": 2}, {"global": 96, "tenant": 17}),
        ({"tenant": 9, "global": 1}, {"tenant": 10, "global": 98}),
        ({"global": 1, "tenant": 10}, None),  # of this one 9 are here
        ({"tenant": 1, "user": 1}, None),  # of this one nothing is known
        ({"tenant": 1, "global": 0}, None),
        ({}, {}),
    ],
)
def test_several_are_charged_from_memory_if_it_has_enough(
    api: Api, stage: Stage, clock: Clock, costs: dict[str, int], left: dict[str, int] | None
) -> None:
    limiter = api(stage, QUOTAS, sizer=FixedBatch(10), clock=clock)
    limiter.decide_all({"tenant": 1, "global": 1})
    before = len(stage.asks)
    found = limiter.take_leased(costs)
    assert (None if found is None else {key: remaining for key, (remaining, _, _) in found.items()}) == left
    assert all(quota == quota_rule(QUOTAS)(key) for key, (_, quota, _) in (found or {}).items())
    assert len(stage.asks) == before
    assert limiter.statistics().admitted == 2 + (sum(costs.values()) if left is not None else 0)
    limiter.close()


def test_several_are_not_charged_from_memory_whose_lease_has_ended(api: Api, stage: Stage, clock: Clock) -> None:
    limiter = api(stage, QUOTAS, sizer=FixedBatch(10), clock=clock)
    limiter.acquire_all({"tenant": 1, "global": 1})
    inner: Any = getattr(limiter, "_inner", limiter)
    tokens = inner._entries["tenant"].tokens
    was_stopped = False

    def late() -> float:
        nonlocal was_stopped
        was_stopped = was_stopped or tokens.spent > 1  # as soon as it has taken one
        return 1e9 if was_stopped else clock()

    inner._registry.memory._clock = late
    assert limiter.take_leased({"tenant": 1, "global": 1}) is None
    assert limiter.statistics().admitted == 2
    limiter.close()


def test_what_was_borrowed_while_the_store_is_away_is_left_to_a_decision(api: Api, stage: Stage, clock: Clock) -> None:
    limiter = api(stage, QUOTAS, sizer=FixedBatch(10), clock=clock, on_failure=FailurePolicy.local(instances=1))
    stage.before = away
    assert limiter.decide_all({"tenant": 1})["tenant"].source == "fallback"
    assert limiter.take_leased({"tenant": 1}) is None
    assert limiter.decide_all({"tenant": 1})["tenant"].source == "fallback"
    assert limiter.statistics().admitted == 2
    limiter.close()


@pytest.mark.parametrize("name", ["u" * 300])
def test_a_long_key_that_is_short_is_named_whole(api: Api, stage: Stage, clock: Clock, name: str) -> None:
    limiter = api(stage, Quota(SLOW, 1), clock=clock)
    limiter.acquire(name)
    assert list(limiter.decide_all({name: 1, "user": 1})) == [name]
    with pytest.raises(RateLimited) as caught:
        limiter.acquire_all({name: 1, "user": 1}, timeout=0)
    assert caught.value.key == name
    limiter.close()


@pytest.mark.parametrize("in_use", [(), ("quick",), ("slow",), ("quick", "slow")], ids=repr)
@pytest.mark.parametrize("order", [("quick", "slow"), ("slow", "quick")], ids=repr)
def test_of_several_short_keys_the_one_that_takes_longest_tells(
    api: Api, valkey: Server, prefix: str, order: tuple[str, str], in_use: tuple[str, ...]
) -> None:
    quotas = {"quick": Quota.per_minute(1), "slow": Quota.per_hour(1)}
    with api.from_url(valkey.url, quotas, prefix=prefix, deadline=30.0) as limiter:
        for key in in_use:
            limiter.acquire(key, 0)
        costs = dict.fromkeys(order, 1)
        assert all(limiter.decide_all(costs).values())
        for _ in range(3):  # by the store, and by memory
            ((key, decision),) = limiter.decide_all(costs).items()
            assert (key, decision.allowed) == ("slow", False)
            assert decision.retry_after > 3000
        with pytest.raises(RateLimited) as refused:
            limiter.acquire_all(costs, timeout=0)
        assert refused.value.key == "slow"
        assert refused.value.retry_after > 3000


@pytest.mark.parametrize("in_use", [(), ("short",), ("short", "theirs")], ids=repr)
def test_a_key_that_refuses_says_so_whether_or_not_another_can_be_served(
    api: Api, valkey: Server, prefix: str, in_use: tuple[str, ...]
) -> None:
    """The caller heard that the store was unavailable, though no token would come for an hour."""
    with valkey.client() as client, api.from_url(valkey.url, "1/hour", prefix=prefix, deadline=30.0) as limiter:
        limiter.acquire("short")
        client.set(bucket_name(prefix, "theirs"), "text")
        for key in in_use:
            with suppress(RateLimited, StoreUnavailable):
                limiter.acquire(key, timeout=0)
        ((key, decision),) = limiter.decide_all({"short": 1, "theirs": 1}).items()
        assert (key, decision.allowed) == ("short", False)
        with pytest.raises(RateLimited, match="'short' is over its quota"):
            limiter.acquire_all({"short": 1, "theirs": 1}, timeout=0)


# Keys that are not in use: what calls are told, what they charge, and what a fleet admits
SPENT = {"user": Quota(SLOW, 5), "tenant": Quota(SLOW, 20), "global": Quota(SLOW, 100), "*": Quota(SLOW, 50)}


@pytest.fixture
def memory(clock: Clock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture
def spending(api: Api, memory: MemoryStore, clock: Clock, without_refresher: None) -> Any:
    """Nothing is leased but what callers ask for."""
    return api(memory, SPENT, sizer=FixedBatch(1), clock=clock)


@pytest.fixture
def leasing(api: Api, memory: MemoryStore, clock: Clock, without_refresher: None) -> Any:
    """A limiter that leases ten tokens of "tenant" and "global", which are in use, and spends at "user"."""
    spending = api(memory, SPENT, sizer=_Tenths(), clock=clock)
    spending.acquire("tenant")
    spending.acquire("global")
    assert set(entries(spending)) == {"tenant", "global"}
    return spending


class _Tenths:
    """Leases ten tokens of a large bucket, and none ahead of a small one."""

    def want(self, usage: Any) -> int:
        return 10 if usage.quota.burst in (20, 100) else 0


def entries(spending: Any) -> Any:
    return getattr(spending, "_inner", spending)._entries


def left(memory: MemoryStore, *keys: str) -> list[int]:
    return [memory.peek(key, SPENT.get(key, SPENT["*"])).level for key in keys]


def told(decisions: dict[str, Any]) -> list[tuple[str, bool, int, str]]:
    return [(key, each.allowed, each.remaining, each.source) for key, each in decisions.items()]


def test_keys_in_use_pay_from_memory_and_the_others_at_the_store(leasing: Any, memory: MemoryStore) -> None:
    decisions = leasing.decide_all({"tenant": 2, "user": 1, "global": 3})
    assert told(decisions) == [("tenant", True, 17, "local"), ("user", True, 4, "store"), ("global", True, 96, "local")]
    assert left(memory, "user") == [4]
    assert "user" not in entries(leasing)
    leasing.close()
    assert left(memory, "user", "tenant", "global") == [4, 17, 96]


def test_a_refusal_names_the_short_key_and_charges_nothing(leasing: Any, memory: MemoryStore, clock: Clock) -> None:
    leasing.acquire("user", 4)
    decisions: Any = None
    for costs in ({"tenant": 2, "user": 2, "other": 1}, {"other": 1, "user": 2, "tenant": 2}):
        decisions = leasing.decide_all(costs)
        assert [(key, each.allowed, each.remaining) for key, each in decisions.items()] == [("user", False, 1)]
        assert decisions["user"].retry_after == pytest.approx(1000.0)
    assert leasing.statistics().admitted == 6
    assert leasing.statistics().policies["user"].refused == 4
    leasing.close()
    assert left(memory, "tenant", "global", "user", "other") == [19, 99, 1, 50]
    clock.pass_by(decisions["user"].retry_after)
    assert left(memory, "user") == [2]


def test_tokens_whose_lease_ended_before_an_answer_admit_nobody(leasing: Any, memory: Any, clock: Clock) -> None:
    """The call is decided anew, and what was charged meanwhile comes back."""
    spend: Any = memory.spend

    def slow(groups: Any, *, look: bool = False, within: float = math.inf) -> Any:
        memory.spend = spend
        clock.pass_by(60.0)
        return spend(groups, look=look, within=within)

    memory.spend = slow
    assert all(leasing.decide_all({"tenant": 2, "user": 1}).values())
    leasing.close()
    assert left(memory, "user") == [4]


def test_of_several_short_keys_the_first_is_named(spending: Any, memory: MemoryStore) -> None:
    spending.acquire("user", 5)
    spending.acquire("tenant", 20)
    assert list(spending.decide_all({"global": 1, "tenant": 1, "user": 1})) == ["tenant"]
    assert left(memory, "global") == [100]
    spending.close()


def test_a_key_in_use_that_is_short_is_refused_with_the_others_left_alone(leasing: Any, memory: MemoryStore) -> None:
    leasing.acquire("tenant", 19)
    assert not leasing.try_acquire("tenant")
    assert list(leasing.decide_all({"user": 1, "tenant": 1})) == ["tenant"]
    assert left(memory, "user") == [5]
    leasing.close()


def test_several_keys_are_acquired_and_refunded_after_spends(spending: Any, memory: MemoryStore) -> None:
    assert spending.try_acquire("user", 2)
    spending.acquire_all({"user": 3, "tenant": 1})
    with pytest.raises(RateLimited) as caught:
        spending.acquire_all({"tenant": 1, "user": 1}, timeout=0)
    assert caught.value.key == "user"
    assert caught.value.retry_after == pytest.approx(1000.0)
    spending.refund("user", 2)
    spending.acquire("user", 2, timeout=0)
    spending.close()
    assert left(memory, "user", "tenant") == [0, 19]


@pytest.mark.parametrize(
    ("spend", "level"),
    [
        (lambda spending: spending.try_acquire("user", 4) and spending.refund("user", 3), 4),
        (lambda spending: spending.reserve("user", 4).settle(1), 4),
        (lambda spending: spending.reserve("user", 2).settle(4), 1),
    ],
    ids=["a refund", "a reservation of too much", "a reservation of too little"],
)
def test_a_spend_is_corrected_at_the_bucket(spending: Any, memory: MemoryStore, spend: Any, level: int) -> None:
    spend(spending)
    spending.close()
    assert left(memory, "user") == [level]


def test_a_lost_bucket_is_counted_and_begins_with_a_share(api: Api, clock: Clock, without_refresher: None) -> None:
    memory = MemoryStore(clock)
    spending: Any = api(memory, Quota(SLOW, 10), sizer=FixedBatch(1), clock=clock, fill="empty")
    assert spending.try_acquire("ann", 2)
    memory._buckets.clear()
    clock.pass_by(0.1)
    assert not spending.try_acquire("ann")
    assert spending.statistics().losses == 1
    clock.pass_by(3000.0)
    assert spending.try_acquire("ann", 3)
    spending.close()


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
    """Of one key, at random: in no window more is admitted than the burst and what is refilled meanwhile."""
    quota, chance = Quota(100.0, 40), random.Random(7)
    sizers: list[BatchSizer] = [FixedBatch(10), FixedBatch(20), TimeBatch(), *[FixedBatch(1)] * 5]
    limiters = [RateLimiter.from_url(valkey.url, quota, prefix=prefix, sizer=each) for each in sizers]
    for key in map(str, range(12)):
        admitted: list[tuple[float, float, int]] = []
        callers = chance.sample(limiters, 6)
        plans = [[chance.choice((1, 1, 2)) for _ in range(20)] for _ in callers]
        jobs = [
            start(partial(_call, spending, key, costs, admitted))
            for spending, costs in zip(callers, plans, strict=True)
        ]
        for each in jobs:
            each.result(DEADLINE)
        assert sum(cost for *_, cost in admitted) >= quota.burst // 2
        assert excess(admitted, quota) == 0.0
    for spending in limiters:
        spending.close()


def _call(spending: RateLimiter, key: str, costs: list[int], admitted: list[tuple[float, float, int]]) -> None:
    for n, cost in enumerate(costs):
        began = time.monotonic()
        if spending.decide_all({key: cost, f"own-{n}": 1} if n % 3 else {key: cost}).get(key):
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
def test_a_charge_by_an_answer_that_came_too_late_is_there_for_others(
    api: Api, clock: Clock, without_refresher: None, costs: dict[str, int]
) -> None:
    spending: Any = api(_Slow(clock), SPENT, sizer=FixedBatch(1), clock=clock)
    assert [all(spending.decide_all(costs).values()) for _ in range(6)] == [True] * 5 + [False]
    assert spending.statistics().admitted == 5 * len(costs)
