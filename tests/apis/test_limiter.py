"""What each method says and does, of either API, one caller at a time."""

from typing import Any

import pytest

from batchlimit import Decision, Quota, RateLimited, Statistics
from batchlimit.batching import FixedBatch
from batchlimit.quota.lookup import QuotaSource
from batchlimit.stores import MemoryStore
from tests.apis.blocking import Api
from tests.sync.stage import KEY, Clock, Stage
from tests.timelines import FOLLOWED_BY_REFUSALS

SLOW = 0.001
HUNDRED = Quota(SLOW, 100)


@pytest.fixture
def limiter(api: Api, stage: Stage, clock: Clock, without_refresher: None) -> Any:
    """A hundred tokens, in batches of ten, and no refill worth speaking of."""
    return api(stage, HUNDRED, sizer=FixedBatch(10), clock=clock)


def test_a_burst_is_admitted_and_not_one_token_more(limiter: Any) -> None:
    assert [limiter.try_acquire(KEY) for _ in range(101)] == [True] * 100 + [False]


def test_a_cost_is_spent_whole_or_not_at_all(limiter: Any) -> None:
    assert limiter.try_acquire(KEY, 70)
    assert not limiter.try_acquire(KEY, cost=31)
    assert limiter.try_acquire(KEY, 30)
    assert not limiter.try_acquire(KEY)


def test_time_brings_tokens_and_a_refusal_says_when(api: Api, clock: Clock, without_refresher: None) -> None:
    """After the last tokens as well: it is the bucket's own time."""
    limiter = api(MemoryStore(clock), "10/s", clock=clock)
    for at, cost, allowed, retry_after in FOLLOWED_BY_REFUSALS:
        clock.now = 1000.0 + at + 0.0001
        decision = limiter.decide(KEY, cost)
        assert (at, decision.allowed) == (at, allowed)
        assert decision.retry_after == pytest.approx(retry_after, abs=0.001)


def test_acquire_returns_none_or_raises(limiter: Any) -> None:
    limiter.acquire(KEY)
    limiter.acquire(KEY, 99, timeout=0)
    with pytest.raises(RateLimited) as caught:
        limiter.acquire(KEY, 5, timeout=0)
    assert caught.value.key == KEY
    assert caught.value.retry_after == pytest.approx(5 / SLOW)
    assert str(caught.value) == "'tenant:42' is over its quota; retry after 5000.000 s"


def test_the_usual_call_asks_nobody(limiter: Any, stage: Stage) -> None:
    for _ in range(10):
        assert limiter.try_acquire(KEY)
    assert len(stage.asks) == 1


def test_keys_do_not_share_tokens(limiter: Any) -> None:
    limiter.acquire("a", 100)
    assert not limiter.try_acquire("a")
    assert limiter.try_acquire("b", 100)


def test_a_decision_says_who_decided_and_what_is_left(limiter: Any) -> None:
    first, second = limiter.decide(KEY), limiter.decide(KEY)
    assert first == Decision(True, 100, remaining=99, retry_after=0.0, reset_after=1 / SLOW, source="store")
    assert second == Decision(True, 100, remaining=98, retry_after=0.0, reset_after=2 / SLOW, source="local")
    limiter.acquire(KEY, 98)
    dry, still = limiter.decide(KEY), limiter.decide(KEY)
    assert (dry.source, still.source) == ("store", "denied")
    for each in (dry, still):
        assert (each.allowed, each.limit, each.remaining) == (False, 100, 0)
        assert each.retry_after == pytest.approx(1 / SLOW)
        assert each.reset_after == pytest.approx(100 / SLOW)


def test_the_limit_of_several_bandwidths_is_the_smallest_burst(api: Api, clock: Clock, without_refresher: None) -> None:
    limiter = api(MemoryStore(clock), "0.001/s burst 100; 0.001/s burst 30", clock=clock)
    assert limiter.decide(KEY).limit == 30
    limiter.acquire(KEY, 29)
    assert not limiter.try_acquire(KEY)


@pytest.mark.parametrize(
    ("quota", "limits"),
    [
        ("0.001/s burst 7", {"a": 7, "b:1": 7}),
        (Quota(SLOW, 7), {"a": 7, "b:1": 7}),
        ({"a": "1/s burst 1", "*": Quota(SLOW, 9)}, {"a": 1, "ab": 9, "A": 9}),
        ({"*": "9/s", "b:*": "2/s", "b:?": "3/s", "b:1": "4/s"}, {"b:1": 4, "b:2": 2, "b:10": 2, "c": 9}),
        ({"[ab]": "5/s", "*": "6/s"}, {"a": 5, "b": 5, "c": 6}),
        (lambda key: f"{len(key)}/s", {"a": 1, "abc": 3}),
        (lambda key: Quota(SLOW, len(key)), {"a": 1, "abc": 3}),
    ],
)
def test_each_key_has_its_quota(
    api: Api, clock: Clock, without_refresher: None, quota: QuotaSource, limits: dict[str, int]
) -> None:
    limiter = api(MemoryStore(clock), quota, clock=clock)
    assert {key: limiter.peek(key).limit for key in limits} == limits
    assert {key: limiter.decide(key).limit for key in limits} == limits


def test_a_look_spends_nothing_and_asks_for_nothing(limiter: Any, stage: Stage) -> None:
    assert limiter.peek(KEY) == Decision(True, 100, 100, retry_after=0.0, reset_after=0.0, source="store")
    assert stage.asks == []
    limiter.acquire(KEY, 15)
    assert limiter.peek(KEY) == limiter.peek(KEY)
    assert limiter.peek(KEY).remaining == 85


def test_a_look_sees_what_another_instance_spent(api: Api, limiter: Any, stage: Stage, clock: Clock) -> None:
    with api(stage.inner, HUNDRED, clock=clock) as other:
        other.acquire(KEY, 40)
    assert limiter.peek(KEY).remaining == 60


def test_a_refund_within_its_lease_costs_no_call(limiter: Any, stage: Stage) -> None:
    limiter.acquire(KEY)
    before = limiter.statistics().held
    limiter.refund(KEY)
    assert limiter.statistics().held == before + 1
    assert (len(stage.asks), stage.backs) == (1, [])


def test_a_refund_after_its_lease_goes_to_the_store(limiter: Any, stage: Stage, clock: Clock) -> None:
    limiter.acquire(KEY, 100)
    clock.now += 2.0
    limiter.refund(KEY, 30)
    assert stage.peek(KEY, HUNDRED).level == 30


def test_a_refund_never_fills_a_bucket_beyond_its_burst(limiter: Any, stage: Stage, clock: Clock) -> None:
    limiter.acquire(KEY, 10)
    clock.now += 2.0
    for _ in range(3):
        limiter.refund(KEY, 100)
    level = stage.peek(KEY, HUNDRED)
    assert level.level + level.outstanding <= 100
    assert sum(limiter.try_acquire(KEY) for _ in range(300)) <= 100


def test_statistics_say_what_was_done(limiter: Any) -> None:
    assert limiter.statistics() == Statistics(keys=0, admitted=0, refused=0, calls=0, held=0, waiting=0)
    limiter.acquire("a", 5)
    limiter.try_acquire("b")
    limiter.acquire("c", 100)
    assert not limiter.try_acquire("c", 7)
    assert limiter.statistics() == Statistics(keys=3, admitted=106, refused=7, calls=4, held=5 + 9, waiting=0)
