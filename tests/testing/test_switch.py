"""limiting_off admits everything, for a block or from now on; limiting_on ends that, and each is as it was."""

import asyncio
from collections.abc import Iterator

import pytest

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimited, ConcurrencyLimiter, RateLimiter
from batchlimit.concurrency import KeyedConcurrencyLimiter
from batchlimit.errors import LimiterClosed
from batchlimit.laws import Fixed
from batchlimit.shared import AsyncSharedConcurrencyLimiter, SharedConcurrencyLimiter
from batchlimit.testing import frozen_limits, limiting_off, limiting_on
from batchlimit.testing.scene import SCENE
from tests.apis.blocking import Api, Blocking

URL = "redis://192.0.2.1:1/0"
"""Nobody is there."""


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = len(SCENE.worlds)
    yield
    del SCENE._worlds[before:]
    SCENE._move_all()


def spend(limiter: RateLimiter | Blocking) -> int:
    return sum(limiter.try_acquire("ann") for _ in range(20))


@pytest.mark.parametrize("api", [RateLimiter, Blocking])
def test_no_limiter_refuses_within_the_block_made_before_or_in_it(api: Api) -> None:
    before = api.from_url("memory://", "5/hour")
    with limiting_off():
        assert spend(before) == 20
        assert spend(api.from_url(URL, "5/hour")) == 20
        assert before.decide("ann").remaining == 5
    assert spend(before) == 5


def test_a_limiter_that_was_empty_admits_and_is_empty_afterwards() -> None:
    limiter = RateLimiter.from_url("memory://", "5/hour")
    ann = limiter.bucket("ann")
    assert spend(limiter) == 5
    assert not ann.try_acquire()
    with limiting_off():
        assert ann.try_acquire()
        assert limiter.decide("ann", 5).allowed
        limiter.acquire("ann", timeout=0)
        limiter.acquire_all({"ann": 5, "bob": 1}, timeout=0)
    assert not ann.try_acquire()
    assert spend(limiter) == 0


def test_a_quota_of_nothing_admits() -> None:
    limiter = RateLimiter.from_url(URL, "0/s")
    with limiting_off():
        assert limiter.try_acquire("ann")


def test_a_wrong_argument_raises_as_ever() -> None:
    limiter = RateLimiter.from_url(URL, {"ann": "5/hour"})
    with limiting_off():
        with pytest.raises(ValueError, match="no quota"):
            limiter.try_acquire("bob")
        with pytest.raises(ValueError, match="never fit"):
            limiter.try_acquire("ann", 6)


def test_a_limiter_with_a_clock_of_its_own_admits() -> None:
    limiter = RateLimiter.from_url(URL, "5/hour", clock=lambda: 7.0)
    with limiting_off():
        assert spend(limiter) == 20


def test_without_a_block_it_is_off_until_it_is_on() -> None:
    limiter = RateLimiter.from_url("memory://", "5/hour")
    limiting_off()
    assert spend(limiter) == 20
    with limiting_on():
        assert spend(limiter) == 5
    assert spend(limiter) == 20
    limiting_on()
    assert spend(limiter) == 0


def test_frozen_limits_limit_though_limiting_is_off() -> None:
    limiter = RateLimiter.from_url(URL, "5/hour")
    with limiting_off(), frozen_limits():
        assert spend(limiter) == 5
        with limiting_off():
            assert spend(limiter) == 20
            with limiting_on():
                assert spend(limiter) == 0


def test_no_concurrency_limiter_refuses_made_before_or_within() -> None:
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


def test_no_limiter_of_a_fleet_refuses_nor_asks_its_store_made_before_or_within() -> None:
    before = SharedConcurrencyLimiter.from_url(URL, {"gpu": 1})
    with limiting_off():
        after = SharedConcurrencyLimiter.from_url(URL, {"gpu": 1})
        permits = [limiter.acquire("gpu", timeout=0) for limiter in (before, before, after, after)]
        assert not any(permit.lost for permit in permits)
        with pytest.raises(ValueError, match="no limit for key"):
            before.acquire("cpu")
        after.close()
        with pytest.raises(LimiterClosed):
            after.acquire("gpu")
    for permit in permits:
        permit.release()
    assert before.statistics().admitted == before.statistics().asks == 0
    before.close()


def test_limits_of_a_fleet_are_on_again() -> None:
    with SharedConcurrencyLimiter.from_url("memory://", {"gpu": 1}) as limiter:
        held = limiter.acquire("gpu")
        with limiting_off():
            limiter.acquire("gpu", timeout=0).release()
        with pytest.raises(ConcurrencyLimited):
            limiter.acquire("gpu", timeout=0)
        held.release()


async def test_tasks_pass_a_limiter_of_a_fleet_alike() -> None:
    async with AsyncSharedConcurrencyLimiter.from_url(URL, {"gpu": 1}) as limiter:
        with limiting_off():
            async with limiter.acquire("gpu", timeout=0), limiter.acquire("gpu", timeout=0) as permit:
                assert not permit.lost


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


def test_a_closed_concurrency_limiter_is_closed() -> None:
    limiter = ConcurrencyLimiter(Fixed(1))
    limiter.close()
    with limiting_off(), pytest.raises(LimiterClosed):
        limiter.acquire()


def test_tasks_pass_a_gate_alike() -> None:
    async def work() -> int:
        async with AsyncConcurrencyLimiter(Fixed(1)) as limiter:
            with limiting_off():
                async with limiter.acquire(), limiter.acquire():
                    pass
            return limiter.statistics().bypassed

    assert asyncio.run(work()) == 2
