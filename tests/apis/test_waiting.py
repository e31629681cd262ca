"""Waiting for tokens, of either API: in order of arrival, and never for ever."""

import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from batchlimit import LimiterClosed, Quota, RateLimited, StoreUnavailable
from batchlimit.batching import FixedBatch
from batchlimit.stores import MemoryStore
from tests.apis.blocking import Api
from tests.nodes import await_fact
from tests.sync.stage import DEADLINE, KEY, Clock, Gate, Stage, away, nothing, quiet, start, until

SLOW = 0.001
AGAIN = 0.2
"""Seconds after a failure from which on a waiter asks again, and some more."""
TEN = Quota(SLOW, 10)


@pytest.fixture
def limiter(api: Api, stage: Stage, clock: Clock, without_refresher: None) -> Any:
    """A limiter that leases no more than its callers ask for."""
    return api(stage, TEN, sizer=FixedBatch(1), clock=clock)


def stand_in_line(limiter: Any, cost: int = 1, *, timeout: float | None = None) -> "Future[None]":
    """Begin to acquire in another thread; return once it is in line."""
    ahead = limiter.statistics().waiting
    future = start(lambda: limiter.acquire(KEY, cost, timeout=timeout))
    until(lambda: limiter.statistics().waiting == ahead + 1)
    return future


def refund(limiter: Any, tokens: int = 1) -> None:
    """Give tokens to those in line, when all of them have asked in vain."""
    until(lambda: quiet(limiter))
    limiter.refund(KEY, tokens)


def is_empty(limiter: Any) -> bool:
    return not limiter.try_acquire(KEY)


def test_whoever_came_first_is_served_first(limiter: Any) -> None:
    limiter.acquire(KEY, 10)
    line = [stand_in_line(limiter) for _ in range(6)]
    for i, each in enumerate(line):
        refund(limiter)
        each.result(DEADLINE)
        assert [other.done() for other in line] == [True] * (i + 1) + [False] * (5 - i)


def test_small_costs_do_not_starve_a_large_one(limiter: Any) -> None:
    limiter.acquire(KEY, 10)
    large = stand_in_line(limiter, 5)
    small = stand_in_line(limiter, 1)
    for _ in range(4):
        refund(limiter)
        assert is_empty(limiter)  # what came is set aside for the first in line
    assert not large.done()
    assert not small.done()
    refund(limiter)
    large.result(DEADLINE)
    assert not small.done()
    refund(limiter)
    small.result(DEADLINE)


def test_many_who_wait_are_all_served_by_one_refund(limiter: Any) -> None:
    limiter.acquire(KEY, 10)
    line = [stand_in_line(limiter) for _ in range(10)]
    refund(limiter, 10)
    for each in line:
        each.result(DEADLINE)
    assert limiter.statistics().admitted == 20


def test_a_deadline_that_cannot_be_met_is_refused_at_once(limiter: Any) -> None:
    """Time stands still: had it waited, it would wait for ever."""
    limiter.acquire(KEY, 10)
    for timeout in (0, 0.0, 1e-9, 1.0, 999):
        with pytest.raises(RateLimited) as caught:
            limiter.acquire(KEY, timeout=timeout)
        assert caught.value.retry_after == pytest.approx(1 / SLOW)
    assert limiter.statistics().waiting == 0


def test_a_hopeless_deadline_is_refused_with_those_who_can_wait_in_line(limiter: Any) -> None:
    limiter.acquire(KEY, 10)
    patient = stand_in_line(limiter, 3)
    with pytest.raises(RateLimited):
        limiter.acquire(KEY, timeout=5.0)
    refund(limiter, 3)
    patient.result(DEADLINE)


@pytest.mark.parametrize("rate", [1e-6, 1e-9])
def test_a_wait_may_be_longer_than_a_system_waits(rate: float, api: Api, clock: Clock, without_refresher: None) -> None:
    limiter = api(MemoryStore(clock), Quota(rate, 1), clock=clock)
    limiter.acquire(KEY)
    waiter = stand_in_line(limiter)
    refund(limiter)
    waiter.result(DEADLINE)


def test_a_failure_is_an_error_of_each_caller_its_own(stage: Stage, limiter: Any) -> None:
    """One exception raised in many threads would mix up their tracebacks."""
    raised = StoreUnavailable("away")

    def fail() -> None:
        raise raised

    stage.before = fail
    errors = []
    for _ in range(2):
        with pytest.raises(StoreUnavailable) as caught:
            limiter.decide(KEY)
        errors.append(caught.value)
    assert raised not in errors
    assert errors[0] is not errors[1]
    assert all(each.__cause__ is raised for each in errors)


def test_close_wakes_whoever_waits(limiter: Any) -> None:
    limiter.acquire(KEY, 10)
    line = [stand_in_line(limiter, cost) for cost in (1, 5, 10)]
    limiter.close()
    for each in line:
        with pytest.raises(LimiterClosed):
            each.result(DEADLINE)


def test_close_wakes_whoever_waits_though_the_store_is_away(stage: Stage, limiter: Any) -> None:
    """The give-back of one key fails; those who wait at the next must learn of the end all the same."""

    limiter.acquire("another", 5)
    limiter.refund("another", 2)
    limiter.acquire(KEY, 10)
    waiter = stand_in_line(limiter)
    stage.before_back = away
    limiter.close()
    with pytest.raises(LimiterClosed):
        waiter.result(DEADLINE)
    assert limiter.statistics().admitted == 15


@pytest.fixture
def gated(stage: Stage) -> Stage:
    """A stage at which asks of either API may stand, and nobody else is held up."""
    stage.has_gates = True
    return stage


@pytest.fixture
def timed(api: Api, gated: Stage, clock: Clock) -> Any:
    """A limiter that looks after its callers: the deadline of a task is what its loop is to look at."""
    return api(gated, TEN, sizer=FixedBatch(1), clock=clock)


@pytest.mark.parametrize("timeout", [1e10, 1e300, math.inf, None])
def test_a_timeout_may_be_longer_than_a_system_waits(timed: Any, timeout: float | None) -> None:
    assert threading.TIMEOUT_MAX < 1e10
    timed.acquire(KEY, 10)
    waiter = stand_in_line(timed, timeout=timeout)
    refund(timed)
    waiter.result(DEADLINE)


def test_a_deadline_that_passes_in_line_leaves_the_tokens_to_others(gated: Stage, timed: Any, clock: Clock) -> None:
    """The first in line asks the store, which stands still; the second gives up meanwhile."""
    gate = gated.before = Gate()
    first = start(lambda: timed.try_acquire(KEY))
    gate.await_someone()
    second = stand_in_line(timed, timeout=0.01)
    clock.pass_by(0.02)
    with pytest.raises(RateLimited) as caught:
        second.result(DEADLINE)
    assert caught.value.retry_after > 0.0
    gate.open()
    assert first.result(DEADLINE)
    timed.acquire(KEY, 9, timeout=0)


def test_a_failure_reaches_those_without_time_and_the_others_are_served_by_the_next_ask(
    gated: Stage, timed: Any, clock: Clock
) -> None:
    first_ask, second_ask = Gate(), Gate()
    gated.before = first_ask
    first = start(lambda: timed.try_acquire(KEY))
    first_ask.await_someone()
    tries = [start(lambda: timed.try_acquire(KEY)) for _ in range(4)]
    others = [start(lambda: timed.acquire(KEY)) for _ in range(4)]
    until(lambda: timed.statistics().waiting == 9)

    def fail() -> None:
        second_ask()
        raise StoreUnavailable("the server is away")

    gated.before = fail
    first_ask.open()
    assert first.result(DEADLINE)
    second_ask.await_someone()
    latecomer = start(lambda: timed.acquire(KEY))
    until(lambda: timed.statistics().waiting == 9)
    gated.before = nothing
    second_ask.open()
    assert not any(each.result(DEADLINE) for each in tries)
    clock.pass_by(AGAIN)
    for each in [*others, latecomer]:
        each.result(DEADLINE)
    found = timed.statistics()
    assert (found.admitted, found.refused, found.waiting, found.failures) == (6, 4, 0, 1)


def test_close_amid_an_ask_wakes_whoever_waits_for_it_and_gives_its_tokens_back(
    gated: Stage, limiter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchlimit.sync.registry._PATIENCE", DEADLINE)
    gate = gated.before = Gate()
    first = start(lambda: limiter.try_acquire(KEY))
    gate.await_someone()
    second = stand_in_line(limiter)
    closing = start(limiter.close)
    with pytest.raises(LimiterClosed):
        second.result(DEADLINE)
    until(lambda: limiter.statistics().waiting == 0)
    assert not closing.done()
    gate.open()
    with pytest.raises(LimiterClosed):
        first.result(DEADLINE)
    closing.result(DEADLINE)
    assert gated.peek(KEY, TEN)[:2] == (10, 0)


# Callers with a priority pass those that wait without one
API = "api.example.com"


@pytest.fixture
def busy(api: Api) -> Iterator[Any]:
    with api(MemoryStore(), {API: "50/s burst 5", "*": "1000/s"}) as busy:
        yield busy


WAITING_CALLS: list[Callable[[Any, int], object]] = [
    lambda busy, priority: busy.acquire(API, priority=priority),
    lambda busy, priority: busy.acquire_all({API: 1, "other": 1}, priority=priority),
    lambda busy, priority: busy.reserve(API, 1, priority=priority).__enter__(),
    lambda busy, priority: busy.reserve({API: 1, "other": 1}, priority=priority).__enter__(),
]
CALL_NAMES = ["acquire", "acquire_all", "reserve", "reserve several"]


@pytest.mark.parametrize("call", WAITING_CALLS, ids=CALL_NAMES)
def test_an_urgent_caller_is_served_before_those_that_came_earlier(busy: Any, call: Callable[..., object]) -> None:
    order: list[str] = []

    def come(name: str, work: Callable[[], object]) -> "Future[None]":
        waiting = busy.statistics().waiting
        caller = start(lambda: (work(), order.append(name))[1])  # type: ignore[func-returns-value]
        await_fact(lambda: busy.statistics().waiting == waiting + 1, "it waits")
        return caller

    busy.pause(API, 3600)
    threads = [come("batch", lambda: busy.acquire(API)) for _ in range(12)]
    threads.append(come("urgent", lambda: call(busy, 10)))
    busy.resume(API)
    for each in threads:
        each.result(DEADLINE)
    assert order.index("urgent") < 8, "one grant at the most wakes earlier ones with it"


@pytest.mark.parametrize("call", WAITING_CALLS, ids=CALL_NAMES)
@pytest.mark.parametrize(
    ("priority", "error"), [(0, ValueError), (101, ValueError), (True, TypeError), ("1", TypeError)]
)
def test_a_priority_is_a_whole_number_from_1_to_100(busy: Any, call: Any, priority: Any, error: Any) -> None:
    with pytest.raises(error, match="priority must be"):
        call(busy, priority)
    assert busy.statistics().admitted == 0
