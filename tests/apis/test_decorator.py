"""A limiter as a decorator of functions, and as a context manager."""

import inspect
from typing import Any

import pytest

from batchlimit import Quota, RateLimited
from batchlimit.batching import FixedBatch
from tests.apis.blocking import Api
from tests.sync.stage import Clock, Stage

TEN = Quota(0.001, 10)


@pytest.fixture
def limiter(api: Api, stage: Stage, clock: Clock, without_refresher: None) -> Any:
    """Ten tokens a key."""
    return api(stage, TEN, sizer=FixedBatch(1), clock=clock)


def test_each_call_is_charged_to_its_own_key(limiter: Any) -> None:
    @limiter.limit("search:{user}", cost=3)
    def search(user: str, *, page: int = 1) -> tuple[str, int]:
        return user, page

    assert search("ann") == ("ann", 1)
    assert search(user="ann", page=2) == ("ann", 2)
    assert search("bob") == ("bob", 1)
    assert [limiter.peek(f"search:{user}").remaining for user in ("ann", "bob")] == [4, 7]


def test_the_function_is_itself_to_whoever_looks(limiter: Any) -> None:
    @limiter.limit("k")
    def search(user: str, page: int = 1) -> str:
        """Find."""
        return user

    assert (search.__name__, search.__doc__) == ("search", "Find.")
    assert list(inspect.signature(search).parameters) == ["user", "page"]


def test_a_refused_call_does_not_happen(limiter: Any) -> None:
    happened = []

    @limiter.limit("k", cost=lambda n: n, timeout=0)
    def work(n: int) -> None:
        happened.append(n)

    work(7)
    with pytest.raises(RateLimited) as caught:
        work(4)
    work(3)
    assert happened == [7, 3]
    assert caught.value.key == "k"


def test_a_call_that_fails_was_charged_all_the_same(limiter: Any) -> None:
    @limiter.limit("k")
    def work() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        work()
    assert limiter.peek("k").remaining == 9


def test_wrong_arguments_are_not_charged(limiter: Any) -> None:
    @limiter.limit("{user}")
    def work(user: str) -> None: ...

    with pytest.raises(TypeError, match="missing a required argument: 'user'"):
        work()
    assert limiter.statistics().keys == 0


def test_a_method_may_be_limited_by_its_object(limiter: Any) -> None:
    class Service:
        def __init__(self, tenant: str) -> None:
            self.tenant = tenant

        @limiter.limit("{self.tenant}")
        def call(self) -> str:
            return self.tenant

    assert Service("t1").call() == "t1"
    assert limiter.peek("t1").remaining == 9


def test_a_block_is_charged_each_time_it_is_entered(limiter: Any) -> None:
    limit = limiter.limit("k", cost=4, timeout=0)
    for _ in range(2):
        with limit:
            pass
    with pytest.raises(RateLimited), limit:
        pytest.fail("it was entered")
    with pytest.raises(LookupError), limiter.limit("another"):
        raise LookupError


@pytest.mark.parametrize(
    ("key", "cost", "error"),
    [("{a}", 1, ValueError), (5, 1, TypeError), ("k", "x", TypeError), ("k", 1.5, TypeError), ("{}", 1, ValueError)],
)
def test_what_makes_no_sense_is_said_before_any_call(limiter: Any, key: Any, cost: Any, error: type[Exception]) -> None:
    with pytest.raises(error), limiter.limit(key, cost=cost):
        pytest.fail("it was entered")


def test_a_wrong_timeout_is_said_before_any_call(limiter: Any) -> None:
    with pytest.raises(ValueError, match="timeout must be None or at least 0 seconds"):
        limiter.limit("k", timeout=-1)
