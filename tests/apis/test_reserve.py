"""Reservations: an estimate is charged, and what it really was is settled, once."""

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fakeredis import FakeAsyncRedis, FakeRedis

from batchlimit import LimiterClosed, Quota, RateLimited, RateLimiter, StoreUnavailable
from batchlimit.batching import FixedBatch
from batchlimit.errors import Unfit
from batchlimit.stores import MemoryStore
from batchlimit.testing import fake_async_limiter, fake_limiter, frozen_limits
from tests.apis.blocking import Api
from tests.awaiting import awaited
from tests.servers import Server
from tests.sync.stage import DEADLINE, KEY, Clock, Stage, away, spend, start, together, until

SLOW = 0.001
HUNDRED = Quota(SLOW, 100)


@pytest.fixture
def limiter(api: Api, stage: Stage, clock: Clock, without_refresher: None) -> Any:
    """A hundred tokens, and no more leased than callers ask for."""
    return api(stage, HUNDRED, sizer=FixedBatch(1), clock=clock)


@pytest.fixture(params=["one key", "several keys"])
def reserve(request: pytest.FixtureRequest, limiter: Any) -> Any:
    """What reserves so many tokens, of a key or of a mapping."""

    def one(cost: int, **options: Any) -> Any:
        return limiter.reserve(KEY, cost, **options)

    def several(cost: int, **options: Any) -> Any:
        return limiter.reserve({KEY: cost}, **options)

    return one if request.param == "one key" else several


def settle(reservation: Any, actual: Any) -> None:
    reservation.settle(actual if hasattr(reservation, "cost") else {KEY: actual})


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
def test_an_exception_keeps_or_refunds_the_estimate(limiter: Any, reserve: Any, on_error: str, remaining: int) -> None:
    with pytest.raises(LookupError, match="mine"), reserve(40, on_error=on_error):
        raise LookupError("mine")
    assert spend(limiter) == remaining


def test_an_exception_after_settling_changes_nothing(limiter: Any, reserve: Any) -> None:
    with pytest.raises(LookupError), reserve(40, on_error="refund") as reservation:  # noqa: PT012
        settle(reservation, 10)
        raise LookupError
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
def test_settling_twice_is_an_error_and_charges_once(limiter: Any, reserve: Any, again: int) -> None:
    with reserve(40) as reservation:
        settle(reservation, 10)
        with pytest.raises(RuntimeError, match="was settled before"):
            settle(reservation, again)
    assert spend(limiter) == 90


def test_a_reservation_is_neither_settled_nor_entered_after_its_block(limiter: Any, reserve: Any) -> None:
    """It would be charged to nobody."""
    with reserve(40) as reservation:
        pass
    with pytest.raises(RuntimeError, match="or at the end of its block"):
        settle(reservation, 10)
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
def test_an_impossible_use_is_named(limiter: Any, reserve: Any, actual: Any, error: Any, message: str) -> None:
    with reserve(40) as reservation:
        with pytest.raises(error, match=message):
            settle(reservation, actual)
        settle(reservation, 10)
    assert spend(limiter) == 90


@pytest.mark.parametrize("actual", [10, 60])
def test_settling_after_close_says_so(limiter: Any, reserve: Any, actual: int) -> None:
    with reserve(40) as reservation:
        limiter.close()
        with pytest.raises(LimiterClosed):
            settle(reservation, actual)


@pytest.mark.parametrize("on_error", ["", "Refund", None, True])
def test_what_is_to_happen_on_an_error_is_one_of_two(limiter: Any, on_error: Any) -> None:
    with pytest.raises(ValueError, match="on_error must be 'keep' or 'refund', not"):
        limiter.reserve(KEY, 40, on_error=on_error)
    assert spend(limiter) == 100


def test_what_is_not_there_is_owed_and_who_comes_next_waits_behind_it(api: Api) -> None:
    with frozen_limits(), api(MemoryStore(), "100/s burst 10") as limiter:
        with limiter.reserve(KEY, 10) as reservation:
            reservation.settle(25)
        assert limiter.statistics().waiting == 0, "nobody waits with a debt"
        assert not limiter.try_acquire(KEY)
        limiter.acquire(KEY, timeout=DEADLINE)
        assert limiter.statistics().admitted == 26


def test_a_debt_may_be_more_than_ever_fits_at_once(api: Api) -> None:
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


# Several keys: all estimates are charged or none, and each key is settled for what it really was
RPM, TPM = "model:rpm", "model:tpm"
QUOTAS = {RPM: Quota(SLOW, 10), TPM: Quota(SLOW, 1000)}
COSTS = {RPM: 1, TPM: 400}


@pytest.fixture
def both_keys(api: Api, stage: Stage, clock: Clock, without_refresher: None) -> Any:
    """Two keys, and no more leased than callers ask for."""
    return api(stage, QUOTAS, sizer=FixedBatch(1), clock=clock)


@pytest.fixture(params=["valkey", "fakeredis"])
def shared(request: pytest.FixtureRequest, api: Api, valkey: Server, prefix: str, far_away: None) -> Iterator[Any]:
    """A limiter on a server."""
    if request.param == "valkey":
        made: Any = api.from_url(valkey.url, QUOTAS, prefix=prefix, connect_timeout=30.0, deadline=30.0)
    else:
        made = api(FakeRedis() if api is RateLimiter else FakeAsyncRedis(), QUOTAS, prefix=prefix, deadline=30.0)
    with made:
        yield made


def levels(both_keys: Any) -> list[int]:
    """What is left of each key, in the bucket and here."""
    return [both_keys.peek(key).remaining for key in QUOTAS]


@pytest.mark.parametrize("actual", [0, 1, 399, 400, 401, 1000])
def test_each_key_is_settled_for_what_it_really_was(both_keys: Any, actual: int) -> None:
    with both_keys.reserve(COSTS) as reservation:
        assert (reservation.costs, reservation.settled) == (COSTS, False)
        assert repr(getattr(reservation, "_inner", reservation)).endswith(
            "of 1 at 'model:rpm', 400 at 'model:tpm': open>"
        )
        assert levels(both_keys) == [9, 600]
        reservation.settle({TPM: actual, RPM: 2})
        assert reservation.settled
    assert levels(both_keys) == [8, 1000 - actual]


def test_a_key_that_is_not_named_stays_as_it_was_estimated(both_keys: Any) -> None:
    with both_keys.reserve(list(COSTS.items())) as reservation:
        reservation.settle({TPM: 300})
    with both_keys.reserve({RPM: 1}) as reservation:
        reservation.settle({})
    assert levels(both_keys) == [8, 700]


@pytest.mark.parametrize(
    ("actual", "error", "message"),
    [
        ({RPM: 0, "model:z": 1, "model:a": 1}, ValueError, "nothing was reserved at 'model:a', but at"),
        ({RPM: 0, TPM: -1}, ValueError, r"actual \(tokens\) must be from 0 to 1125899906842624, not -1"),
    ],
)
def test_an_impossible_use_of_several_keys_is_named(both_keys: Any, actual: Any, error: Any, message: str) -> None:
    with both_keys.reserve(COSTS) as reservation:
        with pytest.raises(error, match=message):
            reservation.settle(actual)
        assert levels(both_keys) == [9, 600]
        reservation.settle({TPM: 5})
    assert levels(both_keys) == [9, 995]


def test_a_key_that_cannot_be_corrected_keeps_no_other_from_it(both_keys: Any, stage: Stage, clock: Clock) -> None:
    """The leases are over, so that refunds have to travel; that of the first key is lost."""

    def fail() -> None:
        if len(stage.backs) == 1:
            raise StoreUnavailable("away")

    with both_keys.reserve({RPM: 5, TPM: 400}) as reservation:
        clock.pass_by(10.0)
        stage.before_back = fail
        with pytest.raises(StoreUnavailable) as lost:
            reservation.settle({RPM: 1, TPM: 100})
    assert lost.value.key == RPM
    assert len(stage.backs) == 2
    assert levels(both_keys)[1] == 900


@pytest.mark.parametrize("costs", [{RPM: 1, TPM: 1001}, {TPM: 1001, RPM: 1}, {TPM: 10**30}])
def test_an_estimate_above_the_burst_is_an_answer_and_charges_nothing(both_keys: Any, costs: Any) -> None:
    with pytest.raises(RateLimited) as refused:
        both_keys.reserve(costs)
    answer = refused.value
    assert isinstance(answer, Unfit)
    assert not isinstance(answer, ValueError)
    assert (answer.key, answer.cost, answer.largest) == (TPM, costs[TPM], 1000)
    assert (answer.retry_after, answer.retry_after_seconds) == (math.inf, None)
    decision = answer.decision
    assert (decision.allowed, decision.limit, decision.retry_after) == (False, 1000, math.inf)
    assert levels(both_keys) == [10, 1000]


def test_an_estimate_of_one_key_above_the_burst_is_an_answer_and_in_other_calls_a_mistake(both_keys: Any) -> None:
    with pytest.raises(Unfit, match=r"1001 tokens never fit a burst of 1000: key 'model:tpm'"):
        both_keys.reserve(TPM, 1001)
    for call in (both_keys.acquire, both_keys.decide, both_keys.try_acquire):
        with pytest.raises(ValueError, match="never fit"):
            call(TPM, 1001)
    with pytest.raises(ValueError, match="never fit"):
        both_keys.acquire_all({TPM: 1001, RPM: 1})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((RPM,), TypeError, "needs a cost"),
        (({RPM: 1}, 1), TypeError, "a key must be a str"),
        ((7,), TypeError, "several keys come as a mapping"),
        (({RPM: -1},), ValueError, "at least 0"),
        (({RPM: 1.5, TPM: 1},), TypeError, "whole number"),
        (([(RPM, 1), (RPM, 2)],), ValueError, "named twice"),
        (({RPM: 1, "other": 1},), ValueError, "no quota for key 'other'"),
    ],
)
def test_a_reservation_that_makes_no_sense_is_named(both_keys: Any, arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message), both_keys.reserve(*arguments):
        pytest.fail("it was charged")
    with pytest.raises(ValueError, match="on_error must be"):
        both_keys.reserve(COSTS, on_error="Refund")
    assert levels(both_keys) == [10, 1000]


def test_a_long_key_is_settled_by_its_name(api: Api) -> None:
    long = "k" * 400
    with api(MemoryStore(), "1000/day") as both_keys:
        with both_keys.reserve({long: 10, "short": 1}) as reservation:
            reservation.settle({long: 4})
        assert [both_keys.peek(key).remaining for key in (long, "short")] == [996, 999]


def test_many_that_reserve_and_settle_at_once_charge_exactly_what_they_used(shared: Any) -> None:
    """Some are refused, some raise, some use more than they said, and some less."""
    used, lock = {RPM: 0, TPM: 0}, threading.Lock()

    def work() -> None:
        for i in range(5):
            try:
                with shared.reserve({RPM: 1, TPM: 50}, timeout=0, on_error="refund") as reservation:
                    if i == 2:
                        raise LookupError
                    reservation.settle({TPM: 40 + 10 * (i % 3)})
                    with lock:
                        used[RPM] += 1
                        used[TPM] += 40 + 10 * (i % 3)
            except (RateLimited, LookupError):
                pass

    together(4, work)
    assert 0 < used[RPM] <= 10
    assert shared.statistics().waiting == 0
    until(lambda: levels(shared) == [10 - used[RPM], 1000 - used[TPM]])  # once all refunds have arrived


def test_a_fake_limiter_notes_what_was_reserved_and_settled(api: Api) -> None:
    if api is RateLimiter:
        made = fake_limiter({RPM: "10/s", TPM: "1000/s"})
        with made.reserve(COSTS) as reservation:
            reservation.settle({TPM: 300})
        script = made.script
    else:
        tasks = fake_async_limiter({RPM: "10/s", TPM: "1000/s"})

        async def main() -> None:
            async with tasks.reserve(COSTS) as reservation:
                await reservation.settle({TPM: 300})

        awaited(main)
        script = tasks.script
    assert (script.calls, script.refunds) == ([(RPM, 1), (TPM, 400)], [(TPM, 100)])
