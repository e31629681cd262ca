"""While limits are off no concurrency limiter refuses; afterwards each is as it was."""

import asyncio
from collections.abc import Iterator

import pytest

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimited, ConcurrencyLimiter
from batchlimit.concurrency import KeyedConcurrencyLimiter
from batchlimit.errors import LimiterClosed
from batchlimit.laws import Fixed
from batchlimit.testing import frozen_limits, limiting_off, limiting_on
from batchlimit.testing.scene import SCENE


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = len(SCENE.worlds)
    yield
    del SCENE._worlds[before:]
    SCENE._move_all()


def test_no_limiter_refuses_made_before_or_within() -> None:
    before = ConcurrencyLimiter(Fixed(1))
    with limiting_off(), before.acquire(), before.acquire():
        keyed = KeyedConcurrencyLimiter({"*": 1})
        with keyed.acquire("ann"), keyed.acquire("ann"):
            pass
    seen = before.statistics()
    assert (seen.bypassed, seen.succeeded, seen.in_flight) == (2, 0, 0)
    with before.acquire(), pytest.raises(ConcurrencyLimited):
        before.acquire()
    with keyed.acquire("ann"), pytest.raises(ConcurrencyLimited):
        keyed.acquire("ann")


def test_a_call_that_began_under_a_limit_ends_under_it() -> None:
    limiter = ConcurrencyLimiter(Fixed(1))
    permit = limiter.acquire()
    with limiting_off():
        limiter.acquire().success()
        permit.success()
    assert (limiter.statistics().succeeded, limiter.statistics().in_flight) == (1, 0)


def test_what_lets_calls_pass_comes_back() -> None:
    limiter = ConcurrencyLimiter(Fixed(1), bypass=lambda operation, _partition: operation == "health")
    with limiting_off():
        limiter.acquire().success()
    with limiter.acquire(), limiter.acquire(operation="health"), pytest.raises(ConcurrencyLimited):
        limiter.acquire()


def test_limits_are_on_again_within_limiting_on_and_frozen_time() -> None:
    limiter = ConcurrencyLimiter(Fixed(1))
    for on in (limiting_on, frozen_limits):
        with limiting_off(), on(), limiter.acquire(), pytest.raises(ConcurrencyLimited):
            limiter.acquire()


def test_a_closed_limiter_is_closed() -> None:
    limiter = ConcurrencyLimiter(Fixed(1))
    limiter.close()
    with limiting_off(), pytest.raises(LimiterClosed):
        limiter.acquire()


def test_tasks_pass_alike() -> None:
    async def work() -> int:
        async with AsyncConcurrencyLimiter(Fixed(1)) as limiter:
            with limiting_off():
                async with limiter.acquire(), limiter.acquire():
                    pass
            return limiter.statistics().bypassed

    assert asyncio.run(work()) == 2
