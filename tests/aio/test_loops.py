"""One event loop at a time: who may use a limiter, what happens at the end of a loop, and in a forked child."""

import asyncio
import contextlib
import contextvars
import gc
import inspect
import logging
import os
import threading
import warnings
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from batchlimit import AsyncRateLimiter, Quota, Statistics
from batchlimit.aio.handles import AsyncKeyHandle
from batchlimit.aio.key_entry import KeyEntry
from batchlimit.base.waiting import NO_WAIT
from batchlimit.batching import FixedBatch
from batchlimit.stores import MemoryStore, RedisStore
from batchlimit.stores.memory import AsyncMemoryStore
from tests.aio.loop import run
from tests.aio.stage import KEY, SLOW, Gate, Stage
from tests.servers import Server
from tests.sync.stage import DEADLINE, Clock, start

TEN = Quota(SLOW, 10)

pytestmark = pytest.mark.usefixtures("far_away")


@pytest.fixture
def limiter() -> AsyncRateLimiter:
    """Made where no loop runs."""
    return AsyncRateLimiter(MemoryStore(), TEN)


CALLS: dict[str, Callable[[AsyncRateLimiter], Any]] = {
    "try_acquire": lambda limiter: limiter.try_acquire(KEY),
    "bucket": lambda limiter: limiter.bucket(KEY).try_acquire(),
    "acquire": lambda limiter: limiter.acquire(KEY),
    "decide": lambda limiter: limiter.decide(KEY),
    "peek": lambda limiter: limiter.peek(KEY),
    "refund": lambda limiter: limiter.refund(KEY),
    "reserve": lambda limiter: limiter.reserve(KEY, 1),
    "acquire_all": lambda limiter: limiter.acquire_all({KEY: 1}),
    "close": lambda limiter: limiter.close(),
}


async def spend(limiter: AsyncRateLimiter) -> int:
    spent = 0
    while await limiter.try_acquire(KEY):
        spent += 1
    return spent


async def test_nothing_is_taken_there_of_several_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    limiter, taken = AsyncRateLimiter(MemoryStore(), TEN, sizer=FixedBatch(5)), list[str]()
    assert await limiter.try_acquire(KEY)
    assert limiter.statistics().held == 4

    def take(entry: KeyEntry, _cost: int) -> float:
        taken.append(entry.key)
        return NO_WAIT

    monkeypatch.setattr(KeyEntry, "take", take)
    with pytest.raises(RuntimeError, match="in use on another event loop"):
        await asyncio.to_thread(lambda: asyncio.run(_of_two(limiter)))
    assert taken == []


async def _of_two(limiter: AsyncRateLimiter) -> None:
    await limiter.decide_all({KEY: 2, "cold": 1})


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("warm", [False, True])
def test_another_loop_is_an_error_while_the_first_lives(
    limiter: AsyncRateLimiter, call: Callable[[AsyncRateLimiter], Any], warm: bool
) -> None:
    async def first() -> None:
        assert await limiter.try_acquire(KEY)
        if warm:  # tokens are here: even what needs no store is refused there
            assert limiter.statistics().held > 0
        with pytest.raises(RuntimeError, match="in use on another event loop; make one limiter for each loop"):
            await asyncio.to_thread(lambda: asyncio.run(second()))
        assert await limiter.try_acquire(KEY)

    async def second() -> None:
        await call(limiter)

    limiter = AsyncRateLimiter(MemoryStore(), TEN, sizer=FixedBatch(5)) if warm else limiter
    asyncio.run(first())
    assert limiter.statistics().admitted == 2


def test_two_loops_in_threads_spend_nothing_twice() -> None:
    """Hits look at the thread alone. Were it not for that, two threads would race for each token."""
    limiter = AsyncRateLimiter(MemoryStore(), Quota(1e6, 10**6))
    ready, done = threading.Barrier(2), threading.Event()

    async def owner() -> None:
        await limiter.acquire(KEY)
        ready.wait(DEADLINE)
        assert done.wait(DEADLINE)

    async def other() -> int:
        ready.wait(DEADLINE)
        admitted = 0
        for _ in range(1000):
            with contextlib.suppress(RuntimeError):
                admitted += await limiter.try_acquire(KEY)
        return admitted

    first = start(lambda: asyncio.run(owner()))
    try:
        assert asyncio.run(other()) == 0
    finally:
        done.set()
    first.result(DEADLINE)


def test_a_loop_that_was_closed_without_a_word_takes_its_lease_along() -> None:
    """What it held is the store's to take back, when the lease is over. Nobody spends it twice."""
    store = MemoryStore()
    limiter = AsyncRateLimiter(store, Quota(SLOW, 100), sizer=FixedBatch(20))
    bucket = limiter.bucket(KEY)  # it knows of what is out of use

    async def rest() -> int:
        await limiter.peek(KEY)  # at home here from now on
        return int(await bucket.try_acquire()) + await spend(limiter)

    loop = asyncio.new_event_loop()
    for _ in range(3):
        loop.run_until_complete(_one(bucket))
    held = limiter.statistics().held
    assert held > 0
    loop.close()
    assert asyncio.run(rest()) == 100 - 3 - held


def test_a_hit_on_the_next_loop_that_comes_upon_the_low_mark_rings_at_no_closed_one() -> None:
    limiter = AsyncRateLimiter(MemoryStore(), Quota(SLOW, 100), sizer=FixedBatch(20))

    loop = asyncio.new_event_loop()
    loop.run_until_complete(_one(limiter.bucket(KEY)))
    loop.close()
    limiter._entries[KEY].tokens.set_low_watermark(5)
    assert asyncio.run(spend(limiter)) > 0


async def _one(bucket: AsyncKeyHandle) -> bool:
    return await bucket.try_acquire()


def test_the_end_of_asyncio_run_gives_tokens_back_and_closes_connections(
    valkey: Server, prefix: str, valkey_store: RedisStore
) -> None:
    """Though nobody closed the limiter; and there is nothing to warn of."""
    quota = Quota(SLOW, 100)
    sizer = FixedBatch(20)
    limiter = AsyncRateLimiter.from_url(valkey.url, quota, prefix=prefix, connect_timeout=30.0, sizer=sizer)
    for admitted in (1, 2):
        assert asyncio.run(_one(limiter.bucket(KEY)))
        assert valkey_store.peek(KEY, quota).level == 100 - admitted
        assert valkey_store.peek(KEY, quota).outstanding == 0
    del limiter
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()


def test_tasks_of_a_loop_that_was_closed_move_nothing_any_more() -> None:
    """When they are destroyed they leave a line that nobody looks after. Its next caller once asked the store, which
    took this for our other asks, and what we hold for spent: it flowed in again."""
    clock = Clock()
    store, quota = MemoryStore(clock), Quota(100.0, 100)
    limiter = AsyncRateLimiter(store, quota, sizer=FixedBatch(60), clock=clock)

    async def queue() -> None:
        await limiter.acquire(KEY, 100)
        for _ in range(3):
            asyncio.ensure_future(limiter.acquire(KEY))  # noqa: RUF006  nobody keeps it: that is the point
        await asyncio.sleep(0.01)

    async def go_on() -> None:
        assert await limiter.try_acquire(KEY)
        before = store.peek(KEY, quota)
        gc.collect()
        await asyncio.sleep(0.01)
        assert store.peek(KEY, quota) == before
        assert before.outstanding >= 50

    gc.disable()
    logging.disable()  # asyncio says of each task that it was destroyed
    try:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(queue())
        loop.close()
        clock.now += 1.5
        asyncio.run(go_on())
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()


@pytest.mark.parametrize("kept", [True, False])
def test_a_limiter_that_is_dropped_where_the_loop_ends_gives_its_tokens_back(kept: bool) -> None:
    store, limiters = MemoryStore(), []

    async def main() -> None:
        limiter = AsyncRateLimiter(store, Quota(SLOW, 100), sizer=FixedBatch(20))
        assert await limiter.try_acquire(KEY)
        if kept:
            limiters.append(limiter)

    asyncio.run(main())
    level = store.peek(KEY, Quota(SLOW, 100))
    assert (level.level, level.outstanding) == (99, 0)


def test_closing_may_be_cut_short_and_begun_anew() -> None:
    """The end of asyncio.run cancels it; the farewell does the rest, and a later close() has nothing to say."""

    async def main() -> None:
        stage = Stage(AsyncMemoryStore(store))
        limiters.append(AsyncRateLimiter(stage, Quota(SLOW, 100), sizer=FixedBatch(20)))
        assert await limiters[0].try_acquire(KEY)
        gate = stage.before_back = Gate()
        closing = asyncio.ensure_future(limiters[0].close())
        await gate.await_someone()
        gate.open()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.wait([closing])

    store = MemoryStore()
    limiters: list[AsyncRateLimiter] = []
    asyncio.run(main())
    asyncio.run(limiters[0].close())
    assert limiters[0].statistics().held == 0


def test_a_generator_that_closes_the_limiter_at_the_end_of_the_loop_is_no_trouble(
    valkey: Server, prefix: str, valkey_store: RedisStore
) -> None:
    """asyncio.run finishes both at once, that one and our own."""
    quota, left = Quota(SLOW, 100), []
    trouble: list[dict[str, Any]] = []

    async def lifespan() -> AsyncIterator[None]:
        limiter = AsyncRateLimiter.from_url(
            valkey.url, quota, prefix=prefix, connect_timeout=30.0, sizer=FixedBatch(20)
        )
        try:
            assert await limiter.try_acquire(KEY)
            yield
        finally:
            await limiter.close()

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: trouble.append(context))
        left.append(lifespan())
        await anext(left[0])

    asyncio.run(main())
    assert trouble == []
    assert valkey_store.peek(KEY, quota).outstanding == 0


def test_a_store_that_does_not_answer_is_given_up_when_the_loop_ends(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is left to the loop, of which asyncio would say that it was destroyed."""

    async def main() -> None:
        stage = Stage()
        stage.before = Gate()
        limiter = AsyncRateLimiter(stage, TEN, clock=asyncio.get_running_loop().time)
        limiters.append(limiter)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(limiter.acquire(KEY), 0.1)

    limiters: list[AsyncRateLimiter] = []
    run(main)
    limiters.clear()
    gc.collect()
    assert "destroyed" not in caplog.text


def test_without_a_loop_python_says_so(limiter: AsyncRateLimiter) -> None:
    for call in (limiter.try_acquire(KEY), limiter.acquire(KEY)):
        with pytest.raises(RuntimeError, match="no running event loop"):
            call.send(None)
    assert limiter.statistics() == Statistics(0, 0, 0, 0, 0, 0)


async def test_a_dropped_limiter_gives_its_tokens_back() -> None:
    stage = Stage()
    limiter = AsyncRateLimiter(stage, TEN, sizer=FixedBatch(5), clock=asyncio.get_running_loop().time)
    assert await limiter.try_acquire(KEY)
    del limiter
    gc.collect()
    while (await stage.peek(KEY, TEN)).outstanding:  # noqa: ASYNC110  there is nobody left to tell
        await asyncio.sleep(0.001)
    assert len(stage.backs) == 1, "it did not merely expire"


async def test_closing_leaves_nothing_to_the_loop() -> None:
    """No task, no timer, no generator: a thousand limiters that come and go leave nothing behind."""
    loop: Any = asyncio.get_running_loop()
    tasks, generators = len(asyncio.all_tasks()), len(loop._asyncgens)
    for _ in range(50):
        async with AsyncRateLimiter(Stage(), TEN, clock=loop.time) as limiter:
            assert await limiter.try_acquire(KEY)
        farewell = limiter._registry._farewell
        assert inspect.isasyncgen(farewell)
        assert farewell.ag_frame is None, "it has been said"
        del limiter, farewell
    gc.collect()
    assert (len(asyncio.all_tasks()), len(loop._asyncgens)) == (tasks, generators)
    assert not [timer for timer in loop._scheduled if not timer.cancelled()]


async def test_what_a_request_has_in_its_context_is_not_the_limiters() -> None:
    request = contextvars.ContextVar("request", default="none")
    seen: list[str] = []

    async def look() -> None:
        seen.append(request.get())

    stage = Stage()
    stage.before = look
    limiter = AsyncRateLimiter(stage, TEN, clock=asyncio.get_running_loop().time)
    request.set("mine")
    await limiter.acquire(KEY)
    assert seen == ["none"]


@pytest.mark.usefixtures("far_away")
def test_a_forked_child_is_an_instance_of_its_own(valkey: Server, prefix: str, valkey_store: RedisStore) -> None:
    """It spends nothing of what the parent leased, though it was forked within its loop; and the parent goes on."""
    quota = Quota(SLOW, 100)
    limiter = AsyncRateLimiter.from_url(valkey.url, quota, prefix=prefix, connect_timeout=30.0, deadline=30.0)

    bucket = limiter.bucket(KEY)

    async def parent() -> int:
        await limiter.acquire(KEY, 38)
        assert [await bucket.try_acquire() for _ in range(2)] == [True, True]  # it knows of the parent's tokens
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads that other tests left behind
            if (child := os.fork()) == 0:
                _in_child(bucket, writer)
        os.close(writer)
        with os.fdopen(reader) as answers:
            spent = int(answers.read())
        os.waitpid(child, 0)  # noqa: ASYNC222  it has said its last word
        return spent + await spend(limiter)

    assert asyncio.run(parent()) == 60
    assert valkey_store.peek(KEY, quota).level == 0


def _in_child(bucket: AsyncKeyHandle, writer: int) -> None:
    try:
        asyncio._set_running_loop(None)

        async def some() -> int:
            assert await bucket._limiter.try_acquire("another")  # the limiter is at home here from now on
            spent = 0
            for _ in range(25):
                spent += await bucket.try_acquire()
            return spent

        os.write(writer, str(asyncio.run(some())).encode())
    finally:
        os._exit(0)


async def test_a_fetch_that_is_under_way_when_the_loop_ends_wedges_nobody() -> None:
    """The end of asyncio.run cancels all tasks, the limiter's among them."""
    stage = Stage()
    stage.before = Gate()
    limiter = AsyncRateLimiter(stage, TEN, clock=asyncio.get_running_loop().time)
    waiter = asyncio.create_task(limiter.acquire(KEY))
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.wait([waiter])
    assert waiter.cancelled()
    assert limiter.statistics().waiting == 0
