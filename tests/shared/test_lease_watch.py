"""One timer tells all blocks of one event loop that their lease is over."""

import asyncio
import contextlib
import gc
import math
import random
import threading
import weakref
from typing import Any

import pytest

from batchlimit import ConcurrencyLimited, StoreUnavailable
from batchlimit.concurrency.waits import waits_of
from batchlimit.errors import PermitLost
from batchlimit.shared import AsyncSharedConcurrencyLimiter, Shared, SharedConcurrencyLimiter, SharedPermit
from batchlimit.shared.permit import AsyncSharedPermit
from batchlimit.stores.memory import MemoryStore
from tests.depth import only_deep
from tests.relay import Relay
from tests.servers import Server
from tests.shared.test_limiter import Cut, work
from tests.sync.stage import until

SECOND = 1_000_000_000


def ring(limiter: AsyncSharedConcurrencyLimiter, seconds: float) -> None:
    """So much time has passed for the limiter, and all blocks of this loop look at their leases."""
    now = limiter._engine.clock()
    limiter._engine.clock = lambda: now + round(seconds * SECOND)
    waits = waits_of(asyncio.get_running_loop())
    for slot in list(waits._slots):
        waits._ring(slot)


def watched() -> list[int]:
    """How many blocks each timer of this loop is for."""
    return [len(slot) for slot in waits_of(asyncio.get_running_loop())._slots.values()]


async def test_all_blocks_under_a_lease_share_one_timer_and_those_that_ended_have_none() -> None:
    async with AsyncSharedConcurrencyLimiter.from_url("memory://", {"gpu": Shared(9, lease=3600.0)}) as limiter:
        async with limiter.acquire("gpu"), limiter.acquire("gpu"):
            assert watched() == [2]
            ring(limiter, 60.0)
            assert watched() == [2], "a lease that is not over is looked at again"
        assert watched() == [0]


async def test_a_lease_that_is_about_to_end_is_looked_at_a_millisecond_later() -> None:
    """Timers and clocks do not agree to the last digit."""
    loop, url = asyncio.get_running_loop(), "memory://"
    async with AsyncSharedConcurrencyLimiter.from_url(url, {"gpu": 1}) as limiter, limiter.acquire("gpu") as permit:
        begin = loop.time()
        ring(limiter, (permit._held.lease.until - limiter._engine.clock()) / SECOND - 0.0001)
        (due,) = (number * math.ldexp(1.0, power) for power, number in waits_of(loop)._slots)
        assert due >= begin + 0.001


async def test_a_place_that_was_given_without_the_store_has_no_timer() -> None:
    store = Cut()
    store.is_away = True
    async with AsyncSharedConcurrencyLimiter(store, {"gpu": 1}, on_failure="open") as limiter, limiter.acquire("gpu"):
        assert watched() == []


def test_a_permit_that_was_released_is_freed_without_the_garbage_collector() -> None:
    async def main() -> None:
        async with AsyncSharedConcurrencyLimiter(MemoryStore(), {"gpu": 1}) as limiter:
            permit = limiter.acquire("gpu")
            async with permit:
                found = weakref.ref(permit)
            del permit
            assert found() is None

    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()


def test_a_permit_whose_event_loop_was_closed_amid_its_block_comes_back() -> None:
    limiter, entered = AsyncSharedConcurrencyLimiter(MemoryStore(), {"gpu": 1}), []

    async def hold() -> None:
        async with limiter.acquire("gpu"):
            entered.append(True)
            await asyncio.get_running_loop().create_future()

    async def take() -> None:
        async with limiter, limiter.acquire("gpu", timeout=60):
            pass

    def is_back() -> bool:
        gc.collect()  # once may be too soon: the limiter's thread that woke the caller may still refer to it
        return not any(key.in_flight for key in limiter.statistics().keys.values())

    loop = asyncio.new_event_loop()
    task = loop.create_task(hold())
    while not entered:
        loop.run_until_complete(asyncio.sleep(0))
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    assert not is_back()
    del task, loop
    until(is_back)
    asyncio.run(take())


async def test_a_permit_that_is_lost_as_its_block_begins_does_not_cancel_what_comes_after_the_block() -> None:
    """Python 3.11 keeps the cancellation of a task that runs, and raises it at the next `await`."""
    async with AsyncSharedConcurrencyLimiter.from_url("memory://", {"gpu": 1}) as limiter:
        permit = limiter.acquire("gpu")
        await permit  # it has its place
        permit._held.lose()
        async with permit:
            pass
        await asyncio.sleep(0)


async def forever() -> None:
    await asyncio.Event().wait()


async def test_a_permit_that_is_lost_as_its_block_begins_cancels_the_block() -> None:
    async with AsyncSharedConcurrencyLimiter.from_url("memory://", {"gpu": 1}) as limiter:
        permit = await limiter.acquire("gpu")
        permit._held.lose()
        with pytest.raises(PermitLost):
            async with permit:
                await forever()


@pytest.mark.parametrize("silent", ["hurry", "_watch"], ids=["the loop", "the thread"])
async def test_a_block_hears_from_its_loop_and_from_the_thread_that_asks_that_its_lease_is_over(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AsyncSharedPermit, silent, lambda *_: None)
    store = Cut()
    async with AsyncSharedConcurrencyLimiter(store, {"gpu": Shared(1, lease=0.1)}, deadline=30.0) as limiter:
        with pytest.raises(PermitLost):
            await work(limiter, store)


async def test_a_task_that_was_cancelled_before_its_block_hears_in_it_that_the_permit_is_lost() -> None:
    async with AsyncSharedConcurrencyLimiter.from_url("memory://", {"gpu": 1}) as limiter:
        task = asyncio.current_task()
        assert task
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await forever()
        permit = await limiter.acquire("gpu")
        permit._held.lose()
        with pytest.raises(PermitLost):
            async with permit:
                await forever()
        assert task.cancelling() == task.uncancel() + 1 == 1


async def test_a_block_that_ends_otherwise_than_by_its_cancellation_ends_so() -> None:
    async with AsyncSharedConcurrencyLimiter.from_url("memory://", {"gpu": 1}) as limiter:
        permit = await limiter.acquire("gpu")
        permit._held.lose()
        async with permit:
            with contextlib.suppress(asyncio.CancelledError):
                await forever()
        assert permit.lost


async def test_a_permit_shows_its_state() -> None:
    async with AsyncSharedConcurrencyLimiter.from_url("memory://", {"gpu": 9}) as limiter:
        lost, released = limiter.acquire("gpu"), limiter.acquire("gpu")
        shown = [repr(lost)]
        await lost
        await released
        shown.append(repr(lost))
        lost._held.lose()
        released.release()
        shown += [repr(lost), repr(released)]
        lost.release()
    states = ["not entered", "held", "lost", "released"]
    assert shown == [f"<AsyncSharedPermit of 'gpu': {each}>" for each in states]


# A network that holds packets up for about a lease: the permit is lost or held, and never lost and then held


LEASE = 0.3


def patient(limiter: SharedConcurrencyLimiter) -> SharedPermit:
    while True:
        with contextlib.suppress(StoreUnavailable):  # of the last stall: its circuit breaker is open
            return limiter.acquire("gpu", timeout=60.0)


@only_deep
def test_in_300_stalls_no_permit_revives(valkey: Server, prefix: str) -> None:
    limits, rng = {"gpu": Shared(1, lease=LEASE)}, random.Random(27)
    options: Any = {"prefix": prefix, "deadline": 30.0, "connect_timeout": 30.0}
    lost = revived = 0
    with (
        Relay(valkey.url, 0.0001) as relay,
        SharedConcurrencyLimiter.from_url(relay.url, limits, **options) as far,
        SharedConcurrencyLimiter.from_url(valkey.url, limits, **options) as near,
    ):
        for _ in range(300):
            permit, over, seen = patient(far), threading.Event(), list[bool]()

            def watch(permit: Any = permit, over: Any = over, seen: Any = seen) -> None:
                while not over.wait(0.0005):
                    if permit.lost != (seen or [False])[-1]:
                        seen.append(permit.lost)

            thread = threading.Thread(target=watch)
            thread.start()
            relay.drop()
            over.wait(rng.uniform(0.75, 1.3) * LEASE)
            relay.restore()
            with contextlib.suppress(ConcurrencyLimited, StoreUnavailable):  # the far one holds it, or a slow machine
                near.acquire("gpu", timeout=LEASE / 3).release()
            over.set()
            thread.join()
            permit.release()
            lost += bool(seen)
            revived += len(seen) > 1
    assert revived == 0, f"{lost} of 300 permits were lost, {revived} of them revived"
    assert lost > 30
