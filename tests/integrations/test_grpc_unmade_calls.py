"""Calls of clients that were admitted and could not be made: nothing of them stays behind."""

from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimiter
from batchlimit.concurrency import Outcome
from batchlimit.integrations.grpc import (
    AsyncConcurrencyClient,
    AsyncRateLimitClient,
    ConcurrencyClientInterceptor,
    RateLimitClientInterceptor,
)
from batchlimit.laws import Fixed
from batchlimit.rules import Rule
from tests.integrations.limited_grpc import Limits

DETAILS: Any = SimpleNamespace(method="/test.Echo/unary_unary", timeout=None, metadata=())
MISSED = Rule("missed", "5/hour", key="missed", charge=[404])


class Interrupted(BaseException):
    """As an interrupt that meets a thread, or a cancellation that meets a task."""


def make(details: object, request: object) -> NoReturn:
    raise Interrupted


async def make_async(details: object, request: object) -> NoReturn:
    raise Interrupted


def dropped(code: object) -> Outcome:
    return Outcome.DROPPED


async def intercepted(client: AsyncRateLimitClient | AsyncConcurrencyClient) -> None:
    unary: Any = client.interceptors[0]
    with pytest.raises(Interrupted):
        await unary.intercept_unary_unary(make_async, DETAILS, "a")


def test_a_call_of_a_thread_that_could_not_be_made_is_charged_as_a_failed_one() -> None:
    limits = Limits(False, [MISSED])
    with limits.limiter:
        with pytest.raises(Interrupted):
            RateLimitClientInterceptor(limits.limiter, [MISSED]).intercept_unary_unary(make, DETAILS, "a")
        assert limits.left("missed") == 5


def test_a_call_of_a_task_that_could_not_be_made_is_charged_as_a_failed_one() -> None:
    limits = Limits(True, [MISSED])
    client = AsyncRateLimitClient(limits.limiter, [MISSED])
    limits.do(intercepted, client)
    limits.do(client.close)
    assert limits.left("missed") == 5
    limits.do(limits.limiter.close)


def test_a_call_of_a_thread_that_could_not_be_made_gives_its_permit_back() -> None:
    with ConcurrencyLimiter(Fixed(1)) as limiter:
        with pytest.raises(Interrupted):
            ConcurrencyClientInterceptor(limiter, outcome=dropped).intercept_unary_unary(make, DETAILS, "a")
        seen = limiter.statistics()
        assert (seen.in_flight, seen.ignored, seen.dropped) == (0, 1, 0)


async def test_a_call_of_a_task_that_could_not_be_made_gives_its_permit_back() -> None:
    async with AsyncConcurrencyLimiter(Fixed(1)) as limiter:
        await intercepted(AsyncConcurrencyClient(limiter, outcome=dropped))
        seen = limiter.statistics()
        assert (seen.in_flight, seen.ignored, seen.dropped) == (0, 1, 0)
