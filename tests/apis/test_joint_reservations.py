"""Reservations of several keys: all estimates are charged or none, and each key is settled for what it really was."""

import copy
import math
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fakeredis import FakeAsyncRedis, FakeRedis

from batchlimit import Quota, RateLimited, RateLimiter, StoreUnavailable
from batchlimit.batching import FixedBatch
from batchlimit.errors import Unfit
from batchlimit.stores import MemoryStore
from batchlimit.testing import fake_async_limiter, fake_limiter
from tests.apis.blocking import Api
from tests.awaiting import awaited
from tests.servers import Server
from tests.sync.stage import Clock, Stage, together, until

SLOW = 0.001
RPM, TPM = "model:rpm", "model:tpm"
QUOTAS = {RPM: Quota(SLOW, 10), TPM: Quota(SLOW, 1000)}
COSTS = {RPM: 1, TPM: 400}


@pytest.fixture
def limiter(api: Api, stage: Stage, clock: Clock, without_refresher: None) -> Any:
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


def levels(limiter: Any) -> list[int]:
    """What is left of each key, in the bucket and here."""
    return [limiter.peek(key).remaining for key in QUOTAS]


@pytest.mark.parametrize("actual", [0, 1, 399, 400, 401, 1000])
def test_each_key_is_settled_for_what_it_really_was(limiter: Any, actual: int) -> None:
    with limiter.reserve(COSTS) as reservation:
        assert (reservation.costs, reservation.settled) == (COSTS, False)
        assert levels(limiter) == [9, 600]
        reservation.settle({TPM: actual, RPM: 2})
        assert reservation.settled
    assert levels(limiter) == [8, 1000 - actual]


def test_a_key_that_is_not_named_stays_as_it_was_estimated(limiter: Any) -> None:
    with limiter.reserve(list(COSTS.items())) as reservation:
        reservation.settle({TPM: 300})
    with limiter.reserve({RPM: 1}) as reservation:
        reservation.settle({})
    assert levels(limiter) == [8, 700]


@pytest.mark.parametrize(("on_error", "left"), [("keep", [9, 600]), ("refund", [10, 1000])])
def test_a_block_that_raises_keeps_all_estimates_or_takes_all_back(
    limiter: Any, on_error: str, left: list[int]
) -> None:
    with pytest.raises(LookupError, match="mine"), limiter.reserve(COSTS, on_error=on_error):
        raise LookupError("mine")
    assert levels(limiter) == left


def test_a_block_that_raises_after_it_was_settled_changes_nothing(limiter: Any) -> None:
    with pytest.raises(LookupError), limiter.reserve(COSTS, on_error="refund") as reservation:  # noqa: PT012
        reservation.settle({TPM: 100})
        raise LookupError
    assert levels(limiter) == [9, 900]


def test_it_is_settled_once(limiter: Any) -> None:
    with limiter.reserve(COSTS) as reservation:
        reservation.settle({TPM: 100})
        with pytest.raises(RuntimeError, match="was settled before"):
            reservation.settle({RPM: 0})
    with pytest.raises(RuntimeError, match="was settled before"), reservation:
        pytest.fail("it was entered")
    assert levels(limiter) == [9, 900]


@pytest.mark.parametrize(
    ("actual", "error", "message"),
    [
        ({RPM: 0, "model:tpd": 1}, ValueError, "nothing was reserved at 'model:tpd', but at"),
        ({RPM: 0, TPM: -1}, ValueError, r"actual \(tokens\) must be from 0 to 1125899906842624, not -1"),
        ({RPM: 0, TPM: True}, TypeError, r"actual \(tokens\) must be a whole number, not True"),
        ({RPM: 0, TPM: None}, TypeError, "not None"),
    ],
)
def test_what_it_cannot_have_been_is_named_changes_nothing_and_may_be_corrected(
    limiter: Any, actual: Any, error: type[Exception], message: str
) -> None:
    with limiter.reserve(COSTS) as reservation:
        with pytest.raises(error, match=message):
            reservation.settle(actual)
        assert levels(limiter) == [9, 600]
        reservation.settle({TPM: 5})
    assert levels(limiter) == [9, 995]


def test_a_key_that_cannot_be_corrected_does_not_keep_the_others_from_it(
    limiter: Any, stage: Stage, clock: Clock
) -> None:
    """The leases are over, so that refunds have to travel; that of the first key is lost."""

    def fail() -> None:
        if len(stage.backs) == 1:
            raise StoreUnavailable("away")

    with limiter.reserve({RPM: 5, TPM: 400}) as reservation:
        clock.pass_by(10.0)
        stage.before_back = fail
        with pytest.raises(StoreUnavailable) as lost:
            reservation.settle({RPM: 1, TPM: 100})
    assert lost.value.key == RPM
    assert len(stage.backs) == 2
    assert levels(limiter)[1] == 900


@pytest.mark.parametrize("costs", [{RPM: 1, TPM: 1001}, {TPM: 1001, RPM: 1}, {TPM: 10**30}])
def test_an_estimate_above_the_burst_is_an_answer_and_charges_nothing(limiter: Any, costs: Any) -> None:
    with pytest.raises(RateLimited) as refused:
        limiter.reserve(costs)
    answer = refused.value
    assert isinstance(answer, Unfit)
    assert not isinstance(answer, ValueError)
    assert (answer.key, answer.cost, answer.largest) == (TPM, costs[TPM], 1000)
    assert (answer.retry_after, answer.retry_after_seconds) == (math.inf, None)
    decision = answer.decision
    assert (decision.allowed, decision.limit, decision.retry_after) == (False, 1000, math.inf)
    assert levels(limiter) == [10, 1000]


def test_so_it_is_for_one_key_and_other_calls_say_that_it_is_the_callers_mistake(limiter: Any) -> None:
    with pytest.raises(Unfit, match=r"1001 tokens never fit a burst of 1000: key 'model:tpm'"):
        limiter.reserve(TPM, 1001)
    for call in (limiter.acquire, limiter.decide, limiter.try_acquire):
        with pytest.raises(ValueError, match="never fit"):
            call(TPM, 1001)
    with pytest.raises(ValueError, match="never fit"):
        limiter.acquire_all({TPM: 1001, RPM: 1})


def test_the_answer_travels_between_processes() -> None:
    answer = Unfit("key", 7, 5)
    for each in (pickle.loads(pickle.dumps(answer)), copy.copy(answer)):
        assert (type(each), str(each), each.retry_after) == (Unfit, str(answer), math.inf)
        assert (each.key, each.cost, each.largest) == ("key", 7, 5)


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
def test_what_makes_no_sense_is_named_and_charges_nothing(
    limiter: Any, arguments: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message), limiter.reserve(*arguments):
        pytest.fail("it was charged")
    with pytest.raises(ValueError, match="on_error must be"):
        limiter.reserve(COSTS, on_error="Refund")
    assert levels(limiter) == [10, 1000]


def test_a_long_key_is_settled_by_its_name(api: Api) -> None:
    long = "k" * 400
    with api(MemoryStore(), "1000/day") as limiter:
        with limiter.reserve({long: 10, "short": 1}) as reservation:
            reservation.settle({long: 4})
        assert [limiter.peek(key).remaining for key in (long, "short")] == [996, 999]


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
