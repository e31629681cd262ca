"""The public face of the asyncio API: what each method says and does, one caller at a time."""

import asyncio
import inspect
from typing import Any

import pytest
import redis.asyncio

from batchlimit import AsyncRateLimiter, LimiterClosed, Quota, RateLimiter, StoreUnavailable
from batchlimit.aio.guarded_store import CallTimeout
from batchlimit.batching import FixedBatch
from batchlimit.bucket.messages import Ask, Grant
from batchlimit.reservoir.requests import Requests
from batchlimit.stores import MemoryStore
from tests.aio.loop import virtual_loop
from tests.aio.stage import KEY, SLOW, Gate, Stage, in_line, limiter_on, nothing
from tests.reservoir.world import Moody
from tests.servers import Server

HUNDRED = Quota(SLOW, 100)


def hundred(stage: Stage) -> AsyncRateLimiter:
    """A hundred tokens, in batches of ten, and no refill worth speaking of."""
    return limiter_on(stage, HUNDRED, sizer=FixedBatch(10))


# Admitting


async def test_a_caller_whose_ask_failed_leaves_at_its_deadline() -> None:
    """Though another one waits before it, without a deadline, and asks again and again."""

    async def fail() -> None:
        await limiter.peek("other")  # this key alone fails, so no circuit opens
        await asyncio.sleep(0.001)
        raise StoreUnavailable("away")

    stage = Stage()
    limiter = hundred(stage)
    stage.before = fail
    patient = asyncio.create_task(limiter.acquire(KEY))
    await asyncio.sleep(0.02)
    began = virtual_loop().time()
    with pytest.raises(StoreUnavailable, match="away"):
        await asyncio.wait_for(limiter.acquire(KEY, timeout=0.3), 30.0)
    assert virtual_loop().time() == pytest.approx(began + 0.3)
    patient.cancel()


# In the background


async def test_a_prefetch_comes_before_anybody_has_to_wait() -> None:
    """With the store 10 ms away, at 1000 calls a second."""

    async def travel() -> None:
        await asyncio.sleep(0.005)

    stage = Stage()
    stage.before = stage.after = travel
    limiter = AsyncRateLimiter(stage, "5000/s burst 5000", clock=virtual_loop().time)
    late = []
    for i in range(2000):
        begun = virtual_loop().now
        assert await limiter.try_acquire(KEY)
        if virtual_loop().now > begun:
            late.append(i)
        await asyncio.sleep(0.001)
    assert all(i < 500 for i in late), "after the half second in which the demand becomes known nobody waits"


async def test_in_steady_demand_no_caller_begins_a_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 1000 calls a second: the timer looks before anybody reaches the low mark."""
    surprised, take_low = [], Requests.take_low

    def noting(self: Requests, cost: int) -> float:
        surprised.append(virtual_loop().now)
        return take_low(self, cost)

    monkeypatch.setattr(Requests, "take_low", noting)
    stage = Stage()
    stage.before = lambda: asyncio.sleep(0.001)
    limiter = AsyncRateLimiter(stage, "5000/s burst 5000", sizer=FixedBatch(500), clock=virtual_loop().time)
    begun = virtual_loop().now
    for _ in range(5000):
        assert await limiter.try_acquire(KEY)
        await asyncio.sleep(0.001)
    assert all(at < begun + 1.0 for at in surprised), "but of the first batch, when nothing is known"
    assert len(stage.asks) <= 12


# What it is made of


@pytest.mark.real_time
async def test_it_works_on_a_client_that_the_caller_made_and_keeps(valkey: Server, prefix: str) -> None:
    client = redis.asyncio.Redis.from_url(valkey.url)
    async with AsyncRateLimiter(client, HUNDRED, prefix=prefix) as limiter:
        assert await limiter.try_acquire(KEY)
    assert await client.ping()
    await client.aclose()


@pytest.mark.parametrize("where", ["memory", "valkey"])
def test_both_apis_share_the_buckets_of_a_store(valkey: Server, prefix: str, where: str) -> None:
    store = MemoryStore()

    def made(kind: Any) -> Any:
        if where == "memory":
            return kind(store, HUNDRED)
        return kind.from_url(valkey.url, HUNDRED, prefix=prefix, connect_timeout=30.0, deadline=30.0)

    async def spend() -> int:
        async with made(AsyncRateLimiter) as limiter:
            return sum([await limiter.try_acquire(KEY) for _ in range(60)])

    assert asyncio.run(spend()) == 60
    with made(RateLimiter) as limiter:
        assert sum(limiter.try_acquire(KEY) for _ in range(60)) == 40


async def test_a_store_of_ones_own_may_raise_anything_in_every_call() -> None:
    async def fail() -> None:
        raise LookupError("no such thing")

    stage = Stage()
    stage.before = fail
    limiter = limiter_on(stage)
    with pytest.raises(StoreUnavailable, match="the store failed: LookupError: no such thing"):
        await limiter.decide(KEY)
    stage.before = nothing
    await limiter.acquire(KEY)
    await asyncio.sleep(5.0)
    stage.before_back = fail
    with pytest.raises(StoreUnavailable, match="the store failed: LookupError"):
        await limiter.refund(KEY)
    stage.peek = None  # type: ignore[assignment,method-assign]
    with pytest.raises(StoreUnavailable, match="the store failed: TypeError"):
        await limiter.peek(KEY)


@pytest.mark.parametrize("answer", [None, 5, asyncio.CancelledError()], ids=repr)
async def test_a_store_that_does_not_answer_properly_is_unavailable(answer: object) -> None:
    asked = 0

    class Odd(Stage):
        async def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
            nonlocal asked
            asked += 1
            if isinstance(answer, BaseException):
                raise answer
            return answer  # type: ignore[return-value]

    limiter = limiter_on(Odd())
    with pytest.raises(StoreUnavailable):
        await limiter.acquire(KEY)
    assert asked <= 2


async def test_an_error_of_the_users_task_factory_reaches_the_caller() -> None:
    def broken(_loop: object, _work: object, **_options: object) -> asyncio.Task[None]:
        raise LookupError("no tasks today")

    limiter = limiter_on(Stage())
    loop = asyncio.get_running_loop()
    loop.set_task_factory(broken)  # type: ignore[arg-type]
    try:
        with pytest.raises(StoreUnavailable, match="no tasks today"):
            await limiter.acquire(KEY)
    finally:
        loop.set_task_factory(None)
    await limiter.acquire(KEY)


async def test_a_sizer_that_fails_in_the_background_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    sizer = Moody()
    limiter = limiter_on(Stage(), "10/s burst 10", sizer=sizer)
    async with limiter.reserve(KEY, 10) as reservation:
        await reservation.settle(15)
    sizer.broken = True
    await asyncio.sleep(3.0)
    assert limiter.statistics().owed == 5
    assert 1 <= caplog.text.count("looking after") <= 5
    sizer.broken = False
    await asyncio.sleep(3.0)
    assert limiter.statistics().owed == 0


# Closing


async def test_nobody_is_admitted_while_it_closes() -> None:
    stage = Stage()
    limiter = hundred(stage)
    await limiter.acquire(KEY)
    gate = stage.before = Gate()
    asking = asyncio.create_task(limiter.acquire("another"))
    await gate.await_someone()
    closing = asyncio.create_task(limiter.close())
    await asyncio.sleep(0)
    for call in (limiter.try_acquire(KEY), limiter.acquire(KEY), limiter.acquire_all({})):
        with pytest.raises(LimiterClosed):
            await call
    gate.open()
    await closing
    with pytest.raises(LimiterClosed):
        await asking


async def test_a_second_close_waits_for_the_first() -> None:
    stage = Stage()
    gate = stage.before_back = Gate()
    limiter = hundred(stage)
    assert await limiter.try_acquire(KEY)
    first = asyncio.create_task(limiter.close())
    await gate.await_someone()
    first.cancel()
    second = asyncio.create_task(limiter.close())
    await asyncio.sleep(0)
    assert not second.done()
    gate.open()
    await second
    assert len(stage.backs) == 1


async def test_what_was_to_be_renewed_at_that_moment_goes_back() -> None:
    """The timer let go of a key between the begin of close() and its task, which then knew nothing of it."""
    stage = Stage()
    limiter = limiter_on(stage, Quota(SLOW, 10), sizer=FixedBatch(5))
    await limiter.acquire(KEY)
    virtual_loop().leap(1.4)
    await asyncio.create_task(limiter.close())
    assert (await stage.inner.peek(KEY, Quota(SLOW, 10))).level == 9


async def test_close_does_not_wait_for_ever() -> None:
    stage = Stage()
    stage.before = Gate()
    limiter = hundred(stage)
    waiter = asyncio.create_task(limiter.acquire(KEY))
    await in_line(limiter, 1)
    await limiter.close()
    with pytest.raises(LimiterClosed):
        await waiter


# The asyncio limiter as a decorator: what it takes


async def test_what_is_limited_is_a_coroutine_function_too() -> None:
    @limiter_on(Stage()).limit("k")
    async def search() -> None:
        """Find."""

    assert inspect.iscoroutinefunction(search)
    assert (search.__name__, search.__doc__) == ("search", "Find.")


@pytest.mark.parametrize("function", [len, lambda: None])
async def test_what_is_no_coroutine_function_is_named_at_once(function: Any) -> None:
    with pytest.raises(TypeError, match="an AsyncRateLimiter limits coroutine functions, not"):
        limiter_on(Stage()).limit("k")(function)


async def test_a_limit_may_be_made_before_there_is_a_loop() -> None:
    """Decorators run at import; the limiter is at home on the loop of the first call."""
    limiter = AsyncRateLimiter.from_url("memory://", "10/s")

    @limiter.limit("k")
    async def work() -> int:
        return 1

    assert await work() == 1
    await limiter.close()


@pytest.mark.parametrize("rounds", [1, 2, 3])
async def test_what_came_while_the_loop_was_held_up_is_in_time(rounds: int) -> None:
    """An answer is read in one round of the loop, understood in the next, and its task has it in the third."""
    answer = asyncio.get_running_loop().create_future()

    def arrive(left: int) -> None:
        if left == 1:
            answer.set_result(5)
        else:
            asyncio.get_running_loop().call_soon(arrive, left - 1)

    async with CallTimeout(0.05):
        virtual_loop().leap(3.0)  # somebody computes for three seconds; meanwhile it arrives
        asyncio.get_running_loop().call_soon(arrive, rounds)
        assert await answer == 5


# A key leaves the memory when it is idle, and never under the feet of a task that has tokens of it


@pytest.mark.parametrize("idle_after", [0.0, 0.2, 10.0])
async def test_who_waits_for_one_key_longer_than_its_tokens_of_another_last_gets_both(idle_after: float) -> None:
    """With idle_after=0 the other one had left meanwhile, and an exception of ours came out of acquire_all."""
    stage = Stage()
    limiter = limiter_on(stage, "10/s burst 10", idle_after=idle_after, deadline=10.0)

    async def slow_at_first() -> None:
        if len(stage.asks) == 1:
            await asyncio.sleep(5.0)

    stage.before = slow_at_first
    await limiter.acquire_all({"a": 1, "b": 1})
    assert limiter.statistics().admitted == 2
    await limiter.close()
