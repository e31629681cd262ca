"""What an error carries for whoever handles it, on both APIs."""

import copy
import math
import pickle
import time
from collections.abc import Callable
from typing import Any

import pytest

from batchlimit import ConcurrencyLimited, Decision, Quota, RateLimited, RateLimiter, StoreUnavailable
from batchlimit.batching import FixedBatch
from batchlimit.bucket.messages import Ask
from batchlimit.errors import BucketUnavailable
from batchlimit.stores import MemoryStore, RedisStore
from tests.apis.blocking import Api, Blocking
from tests.sync.stage import KEY, Clock, Stage, nothing

Call = Callable[[RateLimiter | Blocking], object]

REFUSED: dict[str, Call] = {
    "acquire": lambda limiter: limiter.acquire(KEY, 3, timeout=0),
    "acquire_all": lambda limiter: limiter.acquire_all({KEY: 3}, timeout=0),
    "acquire_all of two": lambda limiter: limiter.acquire_all({"another": 1, KEY: 3}, timeout=0),
    "acquire_all in time": lambda limiter: limiter.acquire_all({"another": 1, KEY: 3}, timeout=0.5),
    "reserve": lambda limiter: limiter.reserve(KEY, 3, timeout=0).__enter__(),
}


def _dry(api: Api, clock: Clock) -> RateLimiter | Blocking:
    limiter = api(MemoryStore(clock), "1/s burst 10", sizer=FixedBatch(1), clock=clock)
    limiter.acquire(KEY, 10)
    assert not limiter.try_acquire(KEY, 3)
    return limiter


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_a_refusal_carries_its_key_and_the_decision_on_the_call(
    api: Api, clock: Clock, without_refresher: None, call: Call
) -> None:
    with _dry(api, clock) as limiter:
        expected = limiter.decide(KEY, 3)
        with pytest.raises(RateLimited) as caught:
            call(limiter)
        error = caught.value
        assert (error.key, error.retry_after, error.retry_after_seconds) == (KEY, expected.retry_after, 3)
        assert error.decision == expected
        assert (error.decision.allowed, error.decision.limit, error.decision.remaining) == (False, 10, 0)


FAILED: dict[str, Call] = {
    "acquire": lambda limiter: limiter.acquire(KEY, timeout=0),
    "decide": lambda limiter: limiter.decide(KEY),
    "peek": lambda limiter: limiter.peek(KEY),
    "acquire_all": lambda limiter: limiter.acquire_all({"another": 0, KEY: 1}, timeout=0),
}


@pytest.mark.parametrize("call", FAILED.values(), ids=FAILED)
@pytest.mark.parametrize("kind", [StoreUnavailable, BucketUnavailable])
def test_a_failure_carries_the_key_the_address_and_the_code(
    api: Api, clock: Clock, without_refresher: None, call: Call, kind: type[StoreUnavailable]
) -> None:
    def fail() -> None:
        raise kind("full", code="OOM")

    stage = Stage(MemoryStore(clock))
    stage.before = stage.before_peek = fail
    with api(stage, "1/s", clock=clock) as limiter:
        with pytest.raises(StoreUnavailable) as caught:
            call(limiter)
        stage.before = stage.before_peek = nothing
    assert type(caught.value) is kind
    assert (caught.value.key, caught.value.address, caught.value.code) == (KEY, "stage://", "OOM")


@pytest.mark.parametrize("call", FAILED.values(), ids=FAILED)
def test_while_the_circuit_is_open_it_carries_them_too(
    api: Api, clock: Clock, without_refresher: None, call: Call
) -> None:
    def fail() -> None:
        raise StoreUnavailable("full", code="OOM")

    stage = Stage(MemoryStore(clock))
    stage.before = stage.before_probe = fail
    with api(stage, "1/s", clock=clock) as limiter:
        for n in range(3):
            assert not limiter.try_acquire(f"another {n}")
        with pytest.raises(StoreUnavailable) as caught:
            call(limiter)
        stage.before = stage.before_probe = nothing
    assert type(caught.value) is StoreUnavailable
    assert (caught.value.key, caught.value.address, caught.value.code) == (KEY, "stage://", "OOM")


def test_a_refund_that_does_not_arrive_carries_them(api: Api, clock: Clock, without_refresher: None) -> None:
    def fail() -> None:
        raise StoreUnavailable("full", code="OOM")

    stage = Stage(MemoryStore(clock))
    with api(stage, "1/s burst 10", clock=clock, sizer=FixedBatch(1)) as limiter:
        limiter.acquire(KEY, 10)
        clock.now += 1000.0
        stage.before_back = fail
        with pytest.raises(StoreUnavailable) as caught:
            limiter.refund(KEY, 10)
        stage.before_back = nothing
    assert (caught.value.key, caught.value.address, caught.value.code) == (KEY, "stage://", "OOM")


@pytest.mark.usefixtures("far_away")
def test_a_bucket_that_somebody_gave_a_rate_of_0_is_an_error_that_says_so(api: Api, valkey_store: RedisStore) -> None:
    """No limiter writes one: each refuses a rate of 0 by itself. And none divides by it.

    The limiter is an hour old: of two quotas the younger one counts, and its own must not be, however late it asks.
    """
    passed = 0.0
    with api(valkey_store, "100/s", clock=lambda: time.monotonic() + passed) as limiter:
        passed = 3600.0
        assert limiter.try_acquire("another")
        valkey_store.take(KEY, Quota(0.0), Ask("somebody", 1, need=0, queued=0, want=0))
        assert not limiter.try_acquire(KEY)
        for call in (limiter.decide, limiter.acquire):
            with pytest.raises(BucketUnavailable, match="its quota is '0/s', which no limiter writes: delete it"):
                call(KEY)
        limiter.refund(KEY)
        limiter.peek(KEY)
        assert limiter.try_acquire("another")
        assert limiter.statistics().available


@pytest.mark.parametrize("call", FAILED.values(), ids=FAILED)
def test_the_cause_of_a_failure_is_what_went_wrong_and_is_told_once(
    api: Api, clock: Clock, without_refresher: None, call: Call
) -> None:
    def fail() -> None:
        raise StoreUnavailable("full") from OSError("disk")

    stage = Stage(MemoryStore(clock))
    stage.before = stage.before_peek = fail
    with api(stage, "1/s", clock=clock) as limiter:
        with pytest.raises(StoreUnavailable) as caught:
            call(limiter)
        stage.before = stage.before_peek = nothing
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_what_an_error_carries_travels_along(api: Api, clock: Clock, without_refresher: None, way: Any) -> None:
    with _dry(api, clock) as limiter, pytest.raises(RateLimited) as caught:
        limiter.acquire(KEY, timeout=0)
    told: list[Exception] = [caught.value, StoreUnavailable("a: full", key="k", address="a", code="OOM")]
    told += [BucketUnavailable("b", key="k", address="a")]
    for error in told:
        found = way(error)
        assert (type(found), str(found), vars(found)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize(
    ("retry_after", "header"),
    [(0.0, 0), (0.000_1, 1), (0.999, 1), (1.0, 1), (1.001, 2), (86_399.5, 86_400), (math.inf, None), (None, None)],
)
def test_a_retry_after_header_is_in_whole_seconds_rounded_up_and_none_for_never(
    retry_after: float | None, header: int | None
) -> None:
    assert ConcurrencyLimited("limit", retry_after, limit=1, in_flight=1).retry_after_seconds == header
    if retry_after is not None:
        assert RateLimited("k", retry_after).retry_after_seconds == header
        assert Decision(False, 1, 0, retry_after, 1.0, "local").retry_after_seconds == header
