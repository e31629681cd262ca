"""A FaultStore fails as it is told, in real time and in frozen time, on both APIs."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from batchlimit import FailurePolicy, RateLimiter, StoreUnavailable
from batchlimit.batching import FixedBatch
from batchlimit.quota.failure_policy import FailureSource
from batchlimit.stores import AsyncStore, Spender, Store
from batchlimit.testing import AsyncFaultStore, FaultStore, FrozenLimits, check_store
from tests.apis.blocking import Blocking

URL = "redis://192.0.2.1:1/0"
FIVE = "5/minute"


class Api(NamedTuple):
    """What one API has: both are asked as threads do."""

    limiter: Any
    store: Any


@pytest.fixture(params=[Api(RateLimiter, FaultStore), Api(Blocking, AsyncFaultStore)], ids=["threads", "tasks"])
def api(request: pytest.FixtureRequest) -> Api:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def store(api: Api, without_breaker: None) -> Any:
    return api.store()


@pytest.fixture
def limiter(api: Api, store: Any) -> Iterator[Any]:
    with api.limiter(store, "5/hour", sizer=FixedBatch(0)) as limiter:
        yield limiter


def test_a_store_without_faults_is_a_store() -> None:
    assert isinstance(FaultStore(), Store)
    assert isinstance(AsyncFaultStore(), AsyncStore)
    assert isinstance(FaultStore(), Spender)
    assert isinstance(AsyncFaultStore(), Spender)
    check_store(FaultStore, seeds=1)
    check_store(AsyncFaultStore, seeds=1)


def test_a_store_that_is_down_hears_of_nothing(store: Any, limiter: Any) -> None:
    store.down = 2
    assert [limiter.try_acquire("ann") for _ in range(8)] == [False] * 2 + [True] * 5 + [False]


def test_a_store_is_down_until_it_is_told_otherwise(store: Any, limiter: Any) -> None:
    store.down = True
    for _ in range(5):
        with pytest.raises(StoreUnavailable, match="is down"):
            limiter.decide("ann")
    store.down = False
    assert limiter.try_acquire("ann")


def test_a_lost_reply_is_to_a_call_that_was_carried_out(store: Any, limiter: Any) -> None:
    store.loses_replies = 1
    assert [limiter.try_acquire("ann") for _ in range(7)] == [False] + [True] * 4 + [False] * 2


def test_a_store_that_lost_its_state_begins_anew(store: Any, limiter: Any) -> None:
    assert all(limiter.try_acquire("ann") for _ in range(5))
    store.loses_state = 1
    assert limiter.peek("ann").remaining == 5


POLICIES: list[tuple[FailureSource, list[bool]]] = [
    ("closed", [False] * 3),
    ("open", [True] * 3),
    (FailurePolicy.local(instances=1), [True, False, False]),
]


@pytest.mark.parametrize(("policy", "admitted"), POLICIES)
def test_in_frozen_time_the_policy_decides_while_a_store_is_down(
    api: Api, frozen_limits: FrozenLimits, policy: FailureSource, admitted: list[bool]
) -> None:
    store = api.store(down=True)
    limiter = api.limiter(store, "1/minute", on_failure=policy)
    assert [limiter.try_acquire("ann") for _ in range(3)] == admitted
    store.down = False
    frozen_limits.advance("2m")
    assert [limiter.try_acquire("ann") for _ in range(2)] == [True, False]


def test_in_frozen_time_a_slow_store_moves_the_clock_up_to_the_deadline(api: Api, frozen_limits: FrozenLimits) -> None:
    store = api.store(slow=0.03)
    limiter = api.limiter(store, FIVE, deadline=0.05)
    assert limiter.try_acquire("ann")
    assert frozen_limits.elapsed == pytest.approx(0.03)
    store.slow = 10.0
    with pytest.raises(StoreUnavailable, match="in time"):
        limiter.decide("bob")
    assert frozen_limits.elapsed == pytest.approx(0.08)


@pytest.mark.parametrize("faults", [{"down": True}, {"slow": 10.0}])
def test_in_frozen_time_who_waits_is_told_of_the_third_failure_in_a_row(
    api: Api, frozen_limits: FrozenLimits, faults: dict[str, Any]
) -> None:
    """As by a circuit breaker: without a timeout it would wait for ever, and move the clock on and on."""
    limiter = api.limiter(api.store(**faults), FIVE, deadline=0.05)
    with pytest.raises(StoreUnavailable) as failure:
        limiter.acquire("ann", timeout=60)
    assert type(failure.value) is StoreUnavailable
    assert frozen_limits.elapsed < 1


def test_in_frozen_time_who_waits_is_served_after_two_failures(api: Api, frozen_limits: FrozenLimits) -> None:
    store = api.store()
    limiter = api.limiter(store, FIVE)
    for _ in range(2):
        store.down = 2
        limiter.acquire("ann")


def test_in_frozen_time_a_loss_of_state_fills_all_buckets(api: Api, frozen_limits: FrozenLimits) -> None:
    store = api.store()
    limiter = api.limiter(store, FIVE)
    assert sum(limiter.try_acquire("ann") for _ in range(9)) == 5
    store.loses_state = 1
    assert limiter.peek("ann").remaining == 5


def test_in_frozen_time_callers_are_served_as_soon_as_a_store_is_back(api: Api, frozen_limits: FrozenLimits) -> None:
    """No circuit breaker is open there: a test would have to wait for its probe."""
    store = api.store(down=True)
    limiter = api.limiter(store, FIVE)
    for _ in range(5):
        with pytest.raises(StoreUnavailable, match="is down"):
            limiter.decide("ann")
    store.down = False
    frozen_limits.advance(1.0)
    assert limiter.try_acquire("ann")
