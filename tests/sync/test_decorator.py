"""The threaded limiter as a decorator of coroutine functions, and where it blocks a loop. See tests/apis."""

import asyncio
import functools
import inspect
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from batchlimit import AsyncRateLimiter, Quota, RateLimiter, StoreUnavailable
from batchlimit.batching import FixedBatch
from batchlimit.stores import MemoryStore
from tests.sync.stage import DEADLINE, Clock, Gate, Stage, quiet, start, until

TEN = Quota(0.001, 10)


def by_user(user: object) -> str:
    return f"user:{user}"


def test_a_limit_without_a_key_says_that_it_needs_one(limiter: RateLimiter) -> None:
    greet: Any = limiter.limit(by_user)

    for call in (
        lambda: greet("ann"),
        greet,
        lambda: greet(name="ann"),
        lambda: greet("ann", "bob"),
        lambda: greet(by_user, name="ann"),
    ):
        with pytest.raises(TypeError, match=r"written with a key, as in @limiter\.limit\('search'\)"):
            call()

    async def wait() -> None: ...

    with pytest.raises(TypeError, match=r"wait .* was taken for the key: .* written with a key"):
        limiter.limit(wait)  # type: ignore[arg-type]


# Coroutine functions


async def test_a_coroutine_function_stays_one_and_waits_in_a_thread(limiter: RateLimiter, stage: Stage) -> None:
    @limiter.limit("search:{user}")
    async def search(user: str) -> str:
        await asyncio.sleep(0)
        return user

    assert inspect.iscoroutinefunction(search)
    gate = stage.before = Gate()
    searching = asyncio.create_task(search("ann"))
    while not gate.reached:  # noqa: ASYNC110  the loop turns while a thread waits for the store
        await asyncio.sleep(0.001)
    assert not searching.done()
    gate.open()
    assert await searching == "ann"
    assert limiter.peek("search:ann").remaining == 9


async def test_a_coroutine_waits_in_line_without_a_thread(limiter: RateLimiter) -> None:
    """Twenty of them, of whom one is cancelled: no threads but for the store, and nobody waits for ever."""
    done = []

    @limiter.limit("k")
    async def work(i: int) -> None:
        done.append(i)

    before = set(threading.enumerate())
    limiter.acquire("k", 10)
    waiting = [asyncio.create_task(work(i)) for i in range(20)]
    while limiter.statistics().waiting < 20 or not quiet(limiter, "k"):  # noqa: ASYNC110  there is no event for it
        await asyncio.sleep(0.001)
    waiting[3].cancel()
    await asyncio.wait([waiting[3]])
    limiter.refund("k", 10)
    await asyncio.wait(waiting[:3] + waiting[4:11])
    assert all(each.name.startswith("batchlimit-coroutine") for each in set(threading.enumerate()) - before)
    waiting[11].cancel()
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)
    assert sorted(done) == [0, 1, 2, *range(4, 11)]
    assert limiter.statistics().waiting == 0


def test_a_coroutine_that_gives_up_does_not_hold_up_the_end_of_its_loop(clock: Clock) -> None:
    with RateLimiter(MemoryStore(clock), "1/h burst 1", clock=clock) as limiter:

        @limiter.limit("k")
        async def work() -> None: ...

        async def main() -> None:
            await work()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(work(), 0.01)

        asyncio.run(main())  # it would wait for an hour
        assert limiter.statistics().waiting == 0


async def test_the_threads_of_the_loop_may_end_and_the_key_is_not_blocked(limiter: RateLimiter, stage: Stage) -> None:
    """An ask that waited for one of them was once never made, and never given up."""

    @limiter.limit("k")
    async def work() -> None: ...

    threads = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(threads)
    gate = Gate()
    busy = threads.submit(gate)
    gate.await_someone()
    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    threads.shutdown(wait=False, cancel_futures=True)
    await working
    gate.open()
    busy.result()
    assert start(lambda: limiter.try_acquire("k")).result(DEADLINE)


@pytest.mark.parametrize("error", [StoreUnavailable("away"), RuntimeError("broken")])
def test_a_coroutine_hears_of_a_store_that_fails(limiter: RateLimiter, stage: Stage, error: Exception) -> None:
    @limiter.limit("k", timeout=0)
    async def work() -> None: ...

    def fail() -> None:
        raise error

    stage.before = fail
    with pytest.raises(type(error)):
        asyncio.run(work())
    stage.before = lambda: None
    asyncio.run(work())
    assert limiter.statistics().admitted == 1


async def found(user: str, page: int) -> tuple[str, int]:
    return user, page


class Finds:
    async def __call__(self, page: int) -> tuple[str, int]:
        return "ann", page


@pytest.mark.parametrize("function", [functools.partial(found, "ann"), Finds()], ids=["a partial", "an object"])
def test_what_is_awaited_when_it_is_called_is_a_coroutine_function(limiter: RateLimiter, function: Any) -> None:
    assert asyncio.run(limiter.limit("k")(function)(3)) == ("ann", 3)


def test_an_asynchronous_generator_is_named(limiter: RateLimiter) -> None:
    async def generates() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(TypeError, match="an asynchronous generator cannot be limited"):
        limiter.limit("k")(generates)


def test_who_is_cancelled_in_the_meantime_takes_no_tokens_along(limiter: RateLimiter, stage: Stage) -> None:
    happened = []

    @limiter.limit("k", cost=4)
    async def work() -> None:
        happened.append(1)

    async def main() -> None:
        gate = stage.before = Gate()
        working = asyncio.create_task(work())
        while not gate.reached:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        working.cancel()
        await asyncio.wait([working])
        assert working.cancelled()
        gate.open()

    asyncio.run(main())  # which waits for its threads
    until(lambda: limiter.peek("k").remaining == 10)
    assert happened == []


# Where it blocks a loop


@pytest.fixture
def unwarned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody was warned in this process yet."""
    monkeypatch.setattr("batchlimit.base.blocking._warned", False)


async def _tries(limiter: RateLimiter, n: int) -> None:
    for i in range(n):
        limiter.try_acquire(f"k{i}")


def test_a_limiter_that_blocks_a_loop_warns_once_in_debug_mode(limiter: RateLimiter, unwarned: None) -> None:
    with pytest.warns(RuntimeWarning, match="about to block the event loop .* use an AsyncRateLimiter") as caught:
        asyncio.run(_tries(limiter, 5), debug=True)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_a_limiter_that_was_called_while_another_thread_imported_asyncio_warns_too(
    limiter: RateLimiter, unwarned: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a moment its module has a function of Python, which sees no loop; that of C takes its place."""
    half = SimpleNamespace(_get_running_loop=asyncio.events._py__get_running_loop)  # type: ignore[attr-defined]
    monkeypatch.setattr("batchlimit.base.blocking._ask", None)
    with monkeypatch.context() as importing:
        importing.setitem(sys.modules, "asyncio", SimpleNamespace())
        importing.setitem(sys.modules, "asyncio.events", half)
        limiter.try_acquire("meanwhile")
    with pytest.warns(RuntimeWarning, match="about to block the event loop"):
        asyncio.run(_tries(limiter, 1), debug=True)


@pytest.mark.parametrize("call", ["acquire", "decide", "peek", "refund"])
def test_every_call_that_may_ask_the_store_warns(limiter: RateLimiter, unwarned: None, call: str) -> None:
    async def main() -> None:
        getattr(limiter, call)("k")

    with pytest.warns(RuntimeWarning, match="about to block the event loop"):
        asyncio.run(main(), debug=True)


def test_nobody_is_warned_otherwise(limiter: RateLimiter, clock: Clock, unwarned: None) -> None:
    """Warnings are errors here: without debug mode, without a loop, in a thread, and of what memory answers."""
    asyncio.run(_tries(limiter, 2))
    limiter.acquire("k")
    start(lambda: limiter.acquire("k")).result()

    async def main() -> None:
        await asyncio.to_thread(limiter.acquire, "new")

    asyncio.run(main(), debug=True)
    limiter = RateLimiter(MemoryStore(clock), TEN, sizer=FixedBatch(5), clock=clock)
    limiter.acquire("k0")
    asyncio.run(_tries(limiter, 1), debug=True)
    limiter.close()


@pytest.fixture(params=[RateLimiter, AsyncRateLimiter])
def either(request: pytest.FixtureRequest) -> Any:
    return request.param.from_url("memory://", "1/hour")


def test_a_decorator_without_parentheses_is_told_where_it_stands(either: Any) -> None:
    with pytest.raises(TypeError, match=r"search .* was taken for the key: .* written with a key"):

        @either.limit
        def search(callback: object) -> None: ...

    with pytest.raises(TypeError, match=r"Shop.find .* was taken for the key"):

        class Shop:
            @either.limit
            def find(self, callback: object) -> None: ...


def test_a_function_that_makes_the_key_may_come_from_anywhere(either: Any) -> None:
    def by_page(user: object) -> str:
        return f"page:{user}"

    def maker() -> Any:
        def made(user: object) -> str:
            return f"made:{user}"

        return made

    class Keys:
        def __call__(self, user: object) -> str:
            return f"keys:{user}"

        def of(self, user: object) -> str:
            return f"of:{user}"

    for key in (by_user, by_page, maker(), Keys(), Keys().of, lambda user: f"{user}", functools.partial(by_user), str):
        either.limit(key)
    either.limit(by_page)
    either.limit(lambda user: f"user:{user}")
    either.limit(maker())
