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
from tests.awaiting import awaited
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


def could_not_be_made(asynchronous: bool, client: Any) -> None:
    """Let a client make a call that is interrupted."""

    async def intercepted() -> None:
        await client.interceptors[0].intercept_unary_unary(make_async, DETAILS, "a")

    with pytest.raises(Interrupted):
        awaited(intercepted) if asynchronous else client.intercept_unary_unary(make, DETAILS, "a")


def test_a_call_that_could_not_be_made_is_charged_as_a_failed_one(asynchronous: bool) -> None:
    limits = Limits(asynchronous, [MISSED])
    kind: Any = AsyncRateLimitClient if asynchronous else RateLimitClientInterceptor
    could_not_be_made(asynchronous, client := kind(limits.limiter, [MISSED]))
    if asynchronous:
        limits.do(client.close)
    assert limits.left("missed") == 5
    limits.do(limits.limiter.close)


def test_a_call_that_could_not_be_made_gives_its_permit_back(asynchronous: bool) -> None:
    limiter: Any = AsyncConcurrencyLimiter(Fixed(1)) if asynchronous else ConcurrencyLimiter(Fixed(1))
    kind: Any = AsyncConcurrencyClient if asynchronous else ConcurrencyClientInterceptor
    could_not_be_made(asynchronous, kind(limiter, outcome=dropped))
    seen = limiter.statistics()
    assert (seen.in_flight, seen.ignored, seen.dropped) == (0, 1, 0)
    awaited(limiter.close) if asynchronous else limiter.close()
