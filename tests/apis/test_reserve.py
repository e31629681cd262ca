"""Reservations: an estimate is charged, and what it really was is settled, once."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from batchlimit import LimiterClosed, Quota
from batchlimit.batching import FixedBatch
from batchlimit.stores import MemoryStore
from batchlimit.testing import frozen_limits
from tests.apis.blocking import Api
from tests.servers import Server
from tests.sync.stage import DEADLINE, KEY, Clock, Stage, away, spend, start, until

SLOW = 0.001
HUNDRED = Quota(SLOW, 100)


@pytest.fixture
def limiter(api: Api, stage: Stage, clock: Clock, without_refresher: None) -> Any:
    """A hundred tokens, and no more leased than callers ask for."""
    return api(stage, HUNDRED, sizer=FixedBatch(1), clock=clock)


@pytest.mark.parametrize(
    ("cost", "actual", "remaining"),
    [
        *[(40, actual, 100 - actual) for actual in (0, 1, 39, 40, 41, 100)],
        (40, None, 60),  # who does not settle keeps the estimate
        (0, 30, 70),
    ],
)
def test_what_it_really_was_is_charged(limiter: Any, cost: int, actual: int | None, remaining: int) -> None:
    reservation = limiter.reserve(KEY, cost)
    assert (reservation.cost, reservation.settled, limiter.peek(KEY).remaining) == (cost, False, 100 - cost)
    with reservation:
        if actual is not None:
            reservation.settle(actual)
            assert reservation.settled
    assert spend(limiter) == remaining


@pytest.mark.parametrize(("on_error", "remaining"), [("keep", 60), ("refund", 100)])
def test_an_exception_keeps_the_estimate_or_takes_it_back(limiter: Any, on_error: str, remaining: int) -> None:
    with pytest.raises(LookupError, match="mine"), limiter.reserve(KEY, 40, on_error=on_error):
        raise LookupError("mine")
    assert spend(limiter) == remaining


def test_an_exception_after_settling_changes_nothing(limiter: Any) -> None:
    def fail() -> None:
        with limiter.reserve(KEY, 40, on_error="refund") as reservation:
            reservation.settle(10)
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert spend(limiter) == 90


def test_the_blocks_own_error_is_the_one_to_be_seen(limiter: Any, stage: Stage, clock: Clock) -> None:
    def reserve(meanwhile: Callable[[], object]) -> None:
        with limiter.reserve(KEY, 40, on_error="refund"):
            meanwhile()
            raise LookupError

    stage.before_back = away
    with pytest.raises(LookupError):
        reserve(lambda: clock.pass_by(10.0))  # the lease is over: the refund has to travel
    with pytest.raises(LookupError):
        reserve(limiter.close)


@pytest.mark.parametrize("again", [0, 10, 70])
def test_settling_twice_is_an_error_and_charges_once(limiter: Any, again: int) -> None:
    with limiter.reserve(KEY, 40) as reservation:
        reservation.settle(10)
        with pytest.raises(RuntimeError, match="was settled before"):
            reservation.settle(again)
    assert spend(limiter) == 90


def test_after_the_block_it_is_neither_settled_nor_entered(limiter: Any) -> None:
    """It would be charged to nobody."""
    with limiter.reserve(KEY, 40) as reservation:
        pass
    with pytest.raises(RuntimeError, match="or at the end of its block"):
        reservation.settle(10)
    with pytest.raises(RuntimeError, match="was settled before"), reservation:
        pytest.fail("it was entered")
    assert spend(limiter) == 60


@pytest.mark.parametrize(
    ("actual", "error", "message"),
    [
        (-1, ValueError, r"actual \(tokens\) must be from 0 to 1125899906842624, not -1"),
        pytest.param(10**5000, ValueError, r"not about 10\^5000", id="huge"),
        (1.5, TypeError, r"actual \(tokens\) must be a whole number, not 1\.5"),
        (math.nan, TypeError, "not nan"),
        (True, TypeError, "not True"),
        (None, TypeError, "not None"),
        ("3", TypeError, "not '3'"),
    ],
)
def test_what_it_cannot_have_been_is_named_and_may_be_corrected(
    limiter: Any, actual: Any, error: type[Exception], message: str
) -> None:
    with limiter.reserve(KEY, 40) as reservation:
        with pytest.raises(error, match=message):
            reservation.settle(actual)
        reservation.settle(10)
    assert spend(limiter) == 90


@pytest.mark.parametrize("actual", [10, 60])
def test_settling_after_close_says_so(limiter: Any, actual: int) -> None:
    with limiter.reserve(KEY, 40) as reservation:
        limiter.close()
        with pytest.raises(LimiterClosed):
            reservation.settle(actual)


@pytest.mark.parametrize("on_error", ["", "Refund", None, True])
def test_what_is_to_happen_on_an_error_is_one_of_two(limiter: Any, on_error: Any) -> None:
    with pytest.raises(ValueError, match="on_error must be 'keep' or 'refund', not"):
        limiter.reserve(KEY, 40, on_error=on_error)
    assert spend(limiter) == 100


# Estimates that were too low


def test_what_is_not_there_is_owed_and_who_comes_next_waits_behind_it(api: Api) -> None:
    with frozen_limits(), api(MemoryStore(), "100/s burst 10") as limiter:
        with limiter.reserve(KEY, 10) as reservation:
            reservation.settle(25)
        assert limiter.statistics().waiting == 0, "nobody waits with a debt"
        assert not limiter.try_acquire(KEY)
        limiter.acquire(KEY, timeout=DEADLINE)
        assert limiter.statistics().admitted == 26


def test_it_may_be_more_than_ever_fits_at_once(api: Api) -> None:
    """A debt of five bursts is paid a burst at a time; in the end all of it was charged."""
    with api(MemoryStore(), "200/s burst 10") as limiter:
        with limiter.reserve(KEY, 10) as reservation:
            reservation.settle(60)
        limiter.acquire(KEY, 10, timeout=DEADLINE)
        assert limiter.statistics().admitted == 70


def test_a_debt_of_an_idle_key_is_paid_by_itself(api: Api, valkey: Server, prefix: str) -> None:
    with api.from_url(valkey.url, "100/s burst 10", prefix=prefix, connect_timeout=30.0, deadline=30.0) as limiter:
        with limiter.reserve(KEY, 10) as reservation:
            reservation.settle(25)
        until(lambda: limiter.statistics().admitted == 25)


def test_what_is_owed_at_the_end_is_charged_as_far_as_it_is_there(api: Api, clock: Clock) -> None:
    """A program that reserves, settles and ends pays what it used, and not what it had estimated."""
    store = MemoryStore(clock)
    for _ in range(3):
        with api(store, "1/h burst 1000", clock=clock) as limiter, limiter.reserve(KEY, 1) as reservation:
            reservation.settle(300)
    assert store.peek(KEY, Quota.parse("1/h burst 1000")).level == 100
    with api(store, "1/h burst 1000", clock=clock) as limiter, limiter.reserve(KEY, 1) as reservation:
        reservation.settle(2**50)
        assert limiter.statistics().owed > 0
    assert store.peek(KEY, Quota.parse("1/h burst 1000")).level == 0


def test_a_debt_does_not_outlive_the_limiter(api: Api, stage: Stage, clock: Clock, without_refresher: None) -> None:
    limiter = api(stage, HUNDRED, clock=clock)
    with limiter.reserve(KEY, 100) as reservation:
        reservation.settle(10**12)
    waiter = start(lambda: limiter.acquire(KEY))
    until(lambda: limiter.statistics().waiting == 1)
    limiter.close()
    with pytest.raises(LimiterClosed):
        waiter.result(DEADLINE)


def test_a_debt_where_nothing_ever_flows_in_is_no_debt(api: Api) -> None:
    with api(MemoryStore(), "0/s") as limiter:
        with limiter.reserve(KEY, 0) as reservation:
            reservation.settle(10)
        assert limiter.statistics().waiting == 0
