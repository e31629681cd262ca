"""assert_limited passes if so many calls are admitted and no more, however a call says that it was refused."""

from collections.abc import Callable
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from batchlimit import AsyncRateLimiter, Decision, RateLimited, RateLimiter
from batchlimit.testing import FrozenLimits, assert_limited


class HttpError(Exception):
    def __init__(self, status: int) -> None:
        self.status_code = status


class Call:
    """Returns or raises `good` so many times, and then `bad`."""

    def __init__(self, times: int, good: object, bad: object) -> None:
        self._left, self._good, self._bad = times, good, bad

    def __call__(self) -> object:
        self._left -= 1
        answer = self._good if self._left >= 0 else self._bad
        if isinstance(answer, Exception):
            raise answer
        return answer


REFUSALS = [
    (True, False),
    (None, HttpError(429)),
    (SimpleNamespace(status_code=200), SimpleNamespace(status_code=429)),
    (SimpleNamespace(status=200), SimpleNamespace(status=HTTPStatus.TOO_MANY_REQUESTS)),
    (Decision(True, 5, 4, 0.0, 12.0, "local"), Decision(False, 5, 0, 12.0, 60.0, "denied")),
    (SimpleNamespace(code=grpc.StatusCode.OK), SimpleNamespace(code=grpc.StatusCode.RESOURCE_EXHAUSTED)),
]


@pytest.mark.parametrize(("good", "bad"), REFUSALS)
def test_a_call_may_say_in_many_ways_that_it_was_refused(good: object, bad: object) -> None:
    assert_limited(Call(5, good, bad), after=5)


@pytest.mark.parametrize(("times", "message"), [(4, "call 5 was refused"), (6, "call 6 was admitted")])
def test_another_number_of_admitted_calls_fails(times: int, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_limited(Call(times, True, False), after=5)


def test_another_error_is_not_a_refusal() -> None:
    with pytest.raises(HttpError):
        assert_limited(Call(5, True, HttpError(500)), after=5)


def call_of(limiter: RateLimiter) -> Callable[[str], None]:
    def call(user: str) -> None:
        limiter.acquire(user, timeout=0)

    return call


def test_a_limit_within_a_time_is_looked_at_again_after_it(frozen_limits: FrozenLimits) -> None:
    limiter = RateLimiter.from_url("memory://", "5/minute")
    assert_limited(call_of(limiter), "ann", after=5, within="1m")
    with pytest.raises(AssertionError, match="call 3 30s later was refused"):
        assert_limited(call_of(limiter), "bob", after=5, within="30s")
    with pytest.raises(AssertionError, match="call 1 was refused"):
        assert_limited(call_of(limiter), "bob", after=5)


def test_time_has_to_be_frozen_to_pass() -> None:
    limiter = RateLimiter.from_url("memory://", "5/minute")
    with pytest.raises(RuntimeError, match="frozen_limits"):
        assert_limited(limiter.try_acquire, "ann", after=5, within="1m")


async def test_a_coroutine_function_is_awaited(frozen_limits: FrozenLimits) -> None:
    async with AsyncRateLimiter.from_url("memory://", "5/minute") as limiter:

        async def call(user: str) -> None:
            await limiter.acquire(user, timeout=0)

        await assert_limited(call, "ann", after=5, within="1m")
        await assert_limited(limiter.try_acquire, "bob", after=5)
        await limiter.try_acquire("eve")
        with pytest.raises(AssertionError, match="call 5 was refused"):
            await assert_limited(call, "eve", after=5)


def test_arguments_are_handed_on() -> None:
    seen: list[Any] = []

    def call(*args: object, **kwargs: object) -> bool:
        seen.append((args, kwargs))
        return len(seen) <= 2

    assert_limited(call, 1, x=2, after=2)
    assert seen == [((1,), {"x": 2})] * 3


def test_a_refusal_of_a_limiter_is_one() -> None:
    refusal = RateLimited("ann", 12.0)
    assert_limited(Call(1, None, refusal), after=1)
