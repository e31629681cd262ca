"""What both keyed concurrency limiters do alike: who waits at which key, and several keys all or none.

A caller of several keys is told with a "+" between them.
"""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from batchlimit import ConcurrencyLimited, Queue
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, Keyed, KeyedConcurrencyLimiter
from batchlimit.concurrency.queue import NO_QUEUE
from tests.apis.callers import Caller, Callers, Tasks, Threads

LIMITS: dict[str, int | Keyed] = {
    "user:*": Keyed(1, queue=Queue(10, max_wait=30)),
    "repo:*": Keyed(1, queue=Queue(10, max_wait=30)),
    "all": Keyed(2, queue=Queue(10, max_wait=30)),
    "strict:*": 1,
}
IMPATIENT = Keyed(1, queue=Queue(5, max_wait=0.001))


class OneOrSeveral:
    """A keyed limiter whose `acquire` takes several keys too."""

    def __init__(self, kind: Any, **options: Any) -> None:
        self.inner = kind(LIMITS, **options)

    def acquire(self, keys: str, *, timeout: float | None) -> Any:
        """A key that ends in "!" comes with a priority."""
        priority, keys = int(keys.endswith("!")), keys.removesuffix("!")
        if "+" in keys:
            return self.inner.acquire_all(keys.split("+"), timeout=timeout, priority=priority)
        return self.inner.acquire(keys, timeout=timeout, priority=priority)

    def close(self) -> Any:
        return self.inner.close()


@pytest.fixture(
    params=[(Threads, KeyedConcurrencyLimiter), (Tasks, AsyncKeyedConcurrencyLimiter)], ids=["threads", "asyncio"]
)
def callers(request: pytest.FixtureRequest) -> Iterator[Callers]:
    scene, kind = request.param
    with closing(scene(1, None, NO_QUEUE, make=partial(OneOrSeveral, kind))) as callers:
        yield callers


def come(callers: Callers, keys: str, timeout: float | None = None) -> Caller:
    caller = callers.call(keys, timeout)
    callers.settle()
    return caller


def go(callers: Callers, caller: Caller) -> None:
    caller.permit.success()
    callers.settle()


def in_flight(callers: Callers) -> dict[str, int]:
    seen: dict[str, int] = {}
    for key in callers.limiter.inner.busiest(100):
        if key.in_flight:
            seen[key.key] = key.in_flight
    return seen


def test_keys_do_not_know_of_each_other(callers: Callers) -> None:
    first, other, second = come(callers, "repo:1"), come(callers, "repo:2"), come(callers, "repo:1")
    assert (first.state, other.state, second.state) == ("held", "held", "waiting")
    go(callers, first)
    assert second.state == "held"
    go(callers, second)
    go(callers, other)


def test_without_a_queue_nobody_waits(callers: Callers) -> None:
    first = come(callers, "strict:1")
    assert come(callers, "strict:1").state == "limit"
    assert come(callers, "user:1+strict:1").state == "limit"
    assert in_flight(callers) == {"strict:1": 1}
    go(callers, first)


def test_several_keys_are_held_together_and_end_together(callers: Callers) -> None:
    both = come(callers, "all+repo:1+user:a")
    assert both.permit.keys == ("user:a", "repo:1", "all")
    assert in_flight(callers) == {"user:a": 1, "repo:1": 1, "all": 1}
    go(callers, both)
    assert in_flight(callers) == {}


def test_who_waits_for_one_key_holds_no_place_at_another(callers: Callers) -> None:
    stuck = come(callers, "repo:1")
    waiting = come(callers, "user:a+repo:1")
    assert waiting.state == "waiting"
    assert in_flight(callers) == {"repo:1": 1}
    other = come(callers, "user:a+repo:2")  # the same user, another repository
    assert other.state == "held"
    go(callers, other)
    go(callers, stuck)
    assert waiting.state == "held"
    go(callers, waiting)


def test_after_three_rounds_a_caller_keeps_what_it_has(callers: Callers) -> None:
    user, repo = come(callers, "user:a"), come(callers, "repo:1")
    both = come(callers, "user:a+repo:1")
    go(callers, user)  # it gets the user, finds no room at the repository, gives the user back and waits there
    user = come(callers, "user:a")
    assert user.state == "held"
    go(callers, repo)  # the other way round
    repo = come(callers, "repo:1")
    assert repo.state == "held"
    go(callers, user)  # for the third time: now it keeps the user
    later = come(callers, "user:a")
    assert (both.state, later.state) == ("waiting", "waiting")
    go(callers, repo)
    assert both.state == "held"
    go(callers, both)
    assert later.state == "held"
    go(callers, later)


def test_a_timeout_covers_all_keys_together(callers: Callers) -> None:
    user, repo = come(callers, "user:a"), come(callers, "repo:1")
    both = come(callers, "user:a+repo:1", timeout=10)
    callers.pass_by(6)
    go(callers, user)
    assert both.state == "waiting"
    callers.pass_by(3)
    callers.settle()
    assert both.state == "waiting"
    callers.pass_by(2)
    callers.settle()
    assert both.state == "queue_timeout"
    assert in_flight(callers) == {"repo:1": 1}
    go(callers, repo)


def test_who_is_interrupted_holds_nothing(callers: Callers) -> None:
    repo = come(callers, "repo:1")
    both = come(callers, "user:a+repo:1")
    callers.cancel(both)
    callers.settle()
    assert both.state in ("CancelledError", "Interrupted")
    assert in_flight(callers) == {"repo:1": 1}
    go(callers, repo)
    go(callers, come(callers, "user:a+repo:1"))


def test_a_timeout_of_0_takes_what_is_there(callers: Callers) -> None:
    user = come(callers, "user:a")
    assert come(callers, "all+user:a", timeout=0).state == "limit"
    assert in_flight(callers) == {"user:a": 1}
    go(callers, user)
    both = come(callers, "all+user:a", timeout=0)
    assert both.state == "held"
    go(callers, both)


def test_closing_ends_all_waits(callers: Callers) -> None:
    repo = come(callers, "repo:1")
    waiting = [come(callers, keys) for keys in ("repo:1", "user:a+repo:1")]
    callers.shut()
    callers.settle()
    assert [caller.state for caller in waiting] == ["LimiterClosed", "LimiterClosed"]
    go(callers, repo)


@pytest.mark.parametrize("important", ["repo:1!", "repo:1+all!"])
def test_a_higher_priority_is_next_at_a_key(callers: Callers, important: str) -> None:
    held, low, high = come(callers, "repo:1"), come(callers, "repo:1"), come(callers, important)
    go(callers, held)
    assert (low.state, high.state) == ("waiting", "held")
    go(callers, high)
    assert low.state == "held"
    go(callers, low)


def refused_in_threads(key: str) -> ConcurrencyLimited:
    with KeyedConcurrencyLimiter({"repo:*": IMPATIENT}) as limiter:
        limiter.acquire("repo:1").success()
        with limiter.acquire(key), pytest.raises(ConcurrencyLimited) as refusal:
            limiter.acquire(key)
    return refusal.value


def refused_in_tasks(key: str) -> ConcurrencyLimited:
    async def work() -> ConcurrencyLimited:
        async with AsyncKeyedConcurrencyLimiter({"repo:*": IMPATIENT}) as limiter:
            (await limiter.acquire("repo:1")).success()
            async with limiter.acquire(key):
                with pytest.raises(ConcurrencyLimited) as refusal:
                    await limiter.acquire(key)
        return refusal.value

    return asyncio.run(work())


@pytest.mark.parametrize("refused", [refused_in_threads, refused_in_tasks])
@pytest.mark.parametrize(("key", "is_known"), [("repo:1", True), ("repo:2", False)])
def test_who_waited_in_vain_is_told_when_to_come_back_by_the_calls_of_its_key(
    refused: Any, key: str, is_known: bool
) -> None:
    error = refused(key)
    assert (error.reason, error.key) == ("queue_timeout", key)
    assert (error.retry_after or 0) > 0 if is_known else error.retry_after is None
