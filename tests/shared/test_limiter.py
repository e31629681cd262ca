"""The shared concurrency limiter of both APIs: permits, refusals, what is lost, forks, and the end."""

import asyncio
import contextlib
import gc
import pickle
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from inspect import signature
from typing import Any

import pytest

from batchlimit import ConcurrencyLimited, LimiterClosed, Queue, StoreUnavailable
from batchlimit.base import waking
from batchlimit.bucket.slot_table import SlotAsk, SlotReply
from batchlimit.errors import PermitLost
from batchlimit.quota.failure_policy import FailurePolicy
from batchlimit.shared import AsyncSharedConcurrencyLimiter, AsyncSharedPermit, Shared, SharedConcurrencyLimiter
from batchlimit.shared import engine as engine_module
from batchlimit.shared import limiter as limiter_module
from batchlimit.stores import outage
from batchlimit.stores.memory import MemoryStore
from batchlimit.sync.guarded_store import GuardedStore
from tests.nodes import await_fact
from tests.servers import Server
from tests.sync.stage import DEADLINE, in_child, start


class Cut(MemoryStore):
    """A store that is away when a test says so."""

    def __init__(self) -> None:
        super().__init__(time.monotonic)
        self.is_away = False
        self._lender, self.slots = self.slots, self  # type: ignore[assignment]

    def lend(self, key: str, ask: SlotAsk) -> SlotReply:
        if self.is_away:
            raise StoreUnavailable("away")
        return self._lender.lend(key, ask)

    def listen(self, instance: str, receive: Any) -> None:
        self._lender.listen(instance, receive)

    def after_fork(self) -> None:
        self._lender.after_fork()


class Deaf(Cut):
    """A store whose pushes do not arrive."""

    def listen(self, instance: str, receive: Any) -> None:
        pass


def limiter_of(store: MemoryStore, limits: Any, **options: Any) -> SharedConcurrencyLimiter:
    return SharedConcurrencyLimiter(store, limits, deadline=30.0, **options)


def held(limiter: Any, key: str = "gpu") -> int:
    keys = limiter.statistics().keys
    return keys[key].held if key in keys else 0


@contextlib.contextmanager
def waiting(limiter: SharedConcurrencyLimiter, asks: int = 0, key: str = "gpu") -> Iterator[None]:
    """A thread that waits for a permit, after so many asks; after the block it has had it and given it back."""
    thread = threading.Thread(target=lambda: limiter.acquire(key).release())
    thread.start()

    def waits() -> bool:
        seen = limiter.statistics()
        return key in seen.keys and seen.keys[key].waiting == 1 and seen.asks >= asks

    await_fact(waits, "it waits")
    yield
    thread.join(100)
    assert not thread.is_alive()


class OnServer:
    """Makes limiters of one fleet, whose deadlines are long."""

    def __init__(self, url: str, prefix: str) -> None:
        self._url, self._prefix = url, prefix

    def __call__(self, limits: Any, kind: Any = SharedConcurrencyLimiter) -> Any:
        return kind.from_url(self._url, limits, prefix=self._prefix, deadline=30.0, connect_timeout=30.0)


@pytest.fixture
def on_server(valkey: Server, prefix: str) -> OnServer:
    """Makes limiters that share a prefix on one server."""
    return OnServer(valkey.url, prefix)


def test_processes_on_one_server_share_a_limit(on_server: OnServer) -> None:
    with on_server({"gpu": 2}) as one, on_server({"gpu": 2}) as other:
        first, second = one.acquire("gpu"), other.acquire("gpu")
        with pytest.raises(ConcurrencyLimited) as refusal:
            one.acquire("gpu", timeout=0)
        assert (refusal.value.reason, refusal.value.key, refusal.value.limit) == ("limit", "gpu", 2)
        second.release()
        with one.acquire("gpu") as third:
            assert third.token > second.token
        first.release()


def test_a_release_wakes_a_waiter_of_another_process(on_server: OnServer) -> None:
    with on_server({"gpu": 1}) as one, on_server({"gpu": 1}) as other:
        permit = one.acquire("gpu")
        with waiting(other):
            permit.release()


def test_tasks_and_threads_share_a_limit(on_server: OnServer) -> None:
    async def tasks(most: list[int]) -> None:
        async with on_server({"gpu": 3}, AsyncSharedConcurrencyLimiter) as limiter:

            async def task() -> None:
                async with limiter.acquire("gpu"):
                    most.append(limiter.statistics().keys["gpu"].in_flight)
                    await asyncio.sleep(0)

            await asyncio.gather(*(task() for _ in range(20)))

    most: list[int] = []
    with on_server({"gpu": 3}) as other, other.acquire("gpu"):
        asyncio.run(tasks(most))
    assert max(most) <= 2
    assert len(most) == 20


def test_patterns_and_keys() -> None:
    with limiter_of(MemoryStore(), {"export:*": 1, "gpu": 2}) as limiter:
        with limiter.acquire("export:1"), limiter.acquire("export:2"), limiter.acquire("gpu"), limiter.acquire("gpu"):
            pass
        for wrong in ("other", ""):
            with pytest.raises(ValueError, match="key"):
                limiter.acquire(wrong)
        for no_key in (7, ["gpu", "export:1"]):
            with pytest.raises(TypeError, match="a key must be a str, not "):
                limiter.acquire(no_key)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limits", "options"),
    [
        ({"a": True}, {}),
        ({"a": 1.5}, {}),
        ({"a": 1_000_000_001}, {}),
        ("a", {}),
        ({"a": 1}, {"weight": 0}),
        ({"a": 1}, {"weight": 1.5}),
        ({"a": 1}, {"weight": 1_000_001}),
        ({"a": 1}, {"on_failure": "maybe"}),
    ],
)
def test_arguments_that_cannot_work_are_refused(limits: Any, options: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        SharedConcurrencyLimiter.from_url("memory://", limits, **options)


@pytest.mark.parametrize(
    ("limits", "options", "error"),
    [
        ({}, {}, ValueError),
        ({"a": 0}, {}, ValueError),
        ({"a": 1}, {"connect_timeout": 0.0}, ValueError),
        ({"a": 1}, {"deadline": "0.5"}, TypeError),
    ],
)
def test_a_limiter_that_cannot_be_made_of_an_url_opens_no_store(
    limits: Any, options: Any, error: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[Any]()
    monkeypatch.setattr(limiter_module, "open_store", lambda *each, **_: opened.append(each))
    with pytest.raises(error):
        SharedConcurrencyLimiter.from_url("embedded://", limits, **options)
    assert opened == []


def test_a_limiter_closes_the_store_that_it_opened_and_gives_it_time_to_connect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told, store = list[Any](), MemoryStore()
    monkeypatch.setattr(store, "close", lambda: told.append("closed"))
    monkeypatch.setattr(limiter_module, "open_store", lambda *_, **__: store)
    monkeypatch.setattr(GuardedStore, "allow", lambda self, seconds: told.append(seconds))
    SharedConcurrencyLimiter.from_url("memory://", {"a": 1}, connect_timeout=7.0).close()
    limiter_of(store, {"a": 1}).close()
    assert told == [7.0, "closed"]


def test_a_policy_that_counts_no_instances_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="instances"):
        limiter_of(MemoryStore(), {"a": 1}, on_failure="local").close()


@pytest.mark.parametrize(
    ("limits", "deadline", "waits"),
    [
        ({"a": 1}, 0.5, 0.5),
        ({"a": 1, "b": Shared(1, lease=60.0)}, 9.0, 2.5),
        ({"a": 1, "b": Shared(1, lease=4.0)}, 9.0, 1.0),
    ],
)
def test_an_answer_is_waited_for_a_quarter_of_the_shortest_lease_at_most(
    limits: Any, deadline: float, waits: float
) -> None:
    with SharedConcurrencyLimiter(MemoryStore(), limits, deadline=deadline) as limiter:
        assert limiter._engine.store.deadline == waits


def test_the_largest_numbers_work() -> None:
    limiter_of(
        MemoryStore(), {"a": Shared(1_000_000_000, lease=3600.0), "b": Shared(1, lease=0.1)}, weight=1_000_000
    ).close()


@pytest.mark.parametrize(
    "wrong", [*({"lease": each} for each in (0, 0.09, 3600.5, True, "9", float("nan"))), {"queue": 9}]
)
def test_a_limit_that_cannot_work_is_refused(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        Shared(1, **wrong)


def test_a_store_that_lends_nothing_is_refused() -> None:
    with pytest.raises(TypeError, match="RedisStore"):
        SharedConcurrencyLimiter("redis://", {"a": 1})  # type: ignore[arg-type]


def test_a_queue_has_a_length() -> None:
    with limiter_of(MemoryStore(), {"none": Shared(1, Queue(0)), "one": Shared(1, Queue(1, None))}) as limiter:
        with limiter.acquire("none"), pytest.raises(ConcurrencyLimited) as refusal:
            limiter.acquire("none")
        assert refusal.value.reason == "limit"
        with contextlib.ExitStack() as stack, limiter.acquire("one"):
            stack.enter_context(waiting(limiter, key="one"))
            with pytest.raises(ConcurrencyLimited) as refusal:
                limiter.acquire("one")
        assert refusal.value.reason == "queue_full"


@pytest.fixture
def without_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks or looks again but for a reason."""
    monkeypatch.setattr(engine_module, "_LOOK", (1000.0, 1000.0))
    monkeypatch.setattr(waking, "HEARTBEAT", 1000.0)


@pytest.mark.usefixtures("without_looks")
@pytest.mark.parametrize(
    ("length", "timeout", "reason", "asks"),
    [(9, 0.0, "limit", 0), (1, 0.0, "limit", 0), (1, 0.5, "queue_full", 0), (9, 0.01, "queue_timeout", 1)],
)
def test_where_somebody_waits_who_does_not_wait_is_refused_without_an_ask(
    length: int, timeout: float, reason: str, asks: int
) -> None:
    with limiter_of(MemoryStore(), {"gpu": Shared(1, Queue(length, None), lease=3600.0)}) as limiter:
        permit = limiter.acquire("gpu")
        with waiting(limiter, asks=2):
            with pytest.raises(ConcurrencyLimited) as refusal:
                limiter.acquire("gpu", timeout=timeout)
            assert refusal.value.reason == reason
            assert limiter.statistics().asks - 2 <= asks
            permit.release()


async def test_whose_place_in_the_queue_goes_to_a_higher_priority_hears_at_once() -> None:
    async with AsyncSharedConcurrencyLimiter(MemoryStore(), {"gpu": Shared(1, Queue(1, None))}) as limiter:
        async with limiter.acquire("gpu"):
            tasks = [asyncio.ensure_future(limiter.acquire("gpu", priority=n)._entered()) for n in (0, 1)]
            for _ in range(5):
                await asyncio.sleep(0)
            assert [each.done() for each in tasks] == [True, False]
            with pytest.raises(ConcurrencyLimited, match="queue"):
                await tasks[0]
        (await tasks[1]).release()


@pytest.mark.parametrize(("hears", "looks"), [(True, False), (False, True)], ids=["a push", "a look"])
def test_a_release_wakes_a_waiter_of_another_limiter_on_the_same_memory(
    hears: bool, looks: bool, request: pytest.FixtureRequest
) -> None:
    """By a push; or, where that was lost, by a look: the lease is to be renewed in 20 minutes."""
    store, limits = Cut() if hears else Deaf(), {"gpu": Shared(1, lease=3600.0)}
    if not looks:
        request.getfixturevalue("without_looks")
    with limiter_of(store, limits) as one, limiter_of(store, limits) as other:
        permit = one.acquire("gpu")
        with waiting(other, asks=1):
            permit.release()


@pytest.mark.usefixtures("without_looks")
def test_the_store_hears_soon_of_whom_waited_in_vain() -> None:
    store = MemoryStore()
    limits = {"gpu": Shared(1, lease=3600.0)}
    with limiter_of(store, limits) as one, limiter_of(store, limits) as other, one.acquire("gpu"):
        with pytest.raises(ConcurrencyLimited):
            other.acquire("gpu", timeout=0.2)
        await_fact(lambda: not other.statistics().keys, "nothing is left")


async def test_a_higher_priority_is_served_first() -> None:
    order = []
    async with AsyncSharedConcurrencyLimiter(MemoryStore(), {"gpu": 1}, deadline=30.0) as limiter:

        async def caller(priority: int) -> None:
            async with limiter.acquire("gpu", priority=priority):
                order.append(priority)

        async with limiter.acquire("gpu"):
            tasks = [asyncio.create_task(caller(priority)) for priority in (1, 3, 2)]
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        with pytest.raises(TypeError, match="priority"):
            limiter.acquire("gpu", priority=0.5)  # type: ignore[arg-type]
    assert order == [3, 2, 1]


async def test_a_caller_has_the_priority_0_unless_it_says_another(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    with limiter_of(MemoryStore(), {"gpu": 1}) as limiter:
        monkeypatch.setattr(limiter._engine, "enter", lambda *said: told.append(said[2]))
        limiter.acquire("gpu")
    async with AsyncSharedConcurrencyLimiter(MemoryStore(), {"gpu": 1}) as limiter:
        monkeypatch.setattr(limiter._engine, "enter", lambda *said: told.append(said[2]))
        await limiter.acquire("gpu")
    assert told == [0, 0]


def test_who_waits_in_a_thread_is_warned_where_that_blocks_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchlimit.base.blocking._warned", False)

    async def main() -> None:
        limiter.acquire("gpu").release()

    with limiter_of(MemoryStore(), {"gpu": 1}) as limiter, pytest.warns(RuntimeWarning, match="block the event loop"):
        asyncio.run(main(), debug=True)


async def test_a_task_that_is_cancelled_while_it_waits_leaves_nothing_behind() -> None:
    async with AsyncSharedConcurrencyLimiter(MemoryStore(), {"gpu": 1}) as limiter:
        async with limiter.acquire("gpu"):
            task = asyncio.ensure_future(limiter.acquire("gpu")._entered())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert limiter.statistics().keys["gpu"].waiting == 0
        async with limiter.acquire("gpu"):
            pass


def test_a_permit_is_released_once_and_by_its_block() -> None:
    with limiter_of(MemoryStore(), {"gpu": 2}) as limiter:
        permit = limiter.acquire("gpu")
        with limiter.acquire("gpu"):
            permit.release()
            permit.release()
            assert limiter.statistics().keys["gpu"].in_flight == 1
        assert not permit.lost
        with pytest.raises(RuntimeError, match="released before"), permit:
            pass
        with pytest.raises(TypeError):
            pickle.dumps(permit)


@pytest.mark.usefixtures("without_looks")
def test_what_the_garbage_collector_finds_ends_long_before_the_next_renewal() -> None:
    with limiter_of(MemoryStore(), {"gpu": Shared(1, lease=3600.0)}) as limiter:
        permits = [limiter.acquire("gpu")]
        with pytest.warns(ResourceWarning, match="never released"):
            permits.clear()
        await_fact(lambda: not any(each.in_flight for each in limiter.statistics().keys.values()), "no permit")


async def test_a_task_does_not_use_a_permit_that_it_did_not_await() -> None:
    async with AsyncSharedConcurrencyLimiter(MemoryStore(), {"gpu": 1}) as limiter:
        permit = limiter.acquire("gpu")
        with pytest.raises(RuntimeError, match="was it awaited"):
            permit.release()
        await permit
        with pytest.raises(RuntimeError, match="awaited before"):
            await permit
        permit.release()


async def test_two_tasks_that_await_one_permit_do_not_take_two_places() -> None:
    async with AsyncSharedConcurrencyLimiter(MemoryStore(), {"gpu": 1}) as limiter:
        async with limiter.acquire("gpu"):
            permit = limiter.acquire("gpu")

            async def entered() -> AsyncSharedPermit:
                return await permit

            first = asyncio.create_task(entered())
            await asyncio.sleep(0)  # it waits now
            with pytest.raises(RuntimeError, match="is being awaited by another task"):
                await asyncio.wait_for(permit, 60.0)
        (await first).release()
        assert limiter.statistics().keys["gpu"].in_flight == 0


async def test_a_permit_that_was_refused_may_be_awaited_again() -> None:
    async with AsyncSharedConcurrencyLimiter(MemoryStore(), {"gpu": 1}) as limiter:
        permit = limiter.acquire("gpu", timeout=0)
        async with limiter.acquire("gpu"):
            with pytest.raises(ConcurrencyLimited):
                await permit
        (await permit).release()


def test_a_release_amid_another_call_of_its_thread_comes_soon_and_an_acquire_there_is_refused() -> None:
    with limiter_of(MemoryStore(), {"gpu": 1}) as limiter:
        permit = limiter.acquire("gpu")
        with limiter._engine.holdings.lock:
            permit.release()
            with pytest.raises(RuntimeError, match="another one of the same thread"):
                limiter.acquire("gpu")
        limiter.acquire("gpu").release()


# Lost permits


@pytest.mark.usefixtures("without_breaker")  # which would be open for a moment more
def test_a_thread_hears_that_its_permit_is_lost_when_the_store_is_away_for_a_lease() -> None:
    store = Cut()
    with limiter_of(store, {"gpu": Shared(1, lease=0.1)}) as limiter:
        permit = limiter.acquire("gpu")
        store.is_away = True
        await_fact(lambda: permit.lost, "it is lost")
        with pytest.raises(PermitLost, match="is lost"):
            permit.check()
        await_fact(lambda: limiter.statistics().lost == 1, "it is counted")
        permit.release()
        assert permit.lost
        store.is_away = False
        limiter.acquire("gpu", timeout=60).release()


async def work(limiter: AsyncSharedConcurrencyLimiter, store: Cut) -> None:
    async with limiter.acquire("gpu"):
        store.is_away = True
        await asyncio.Event().wait()


async def test_a_block_whose_permit_is_lost_is_cancelled_and_ends_in_a_named_error() -> None:
    store = Cut()
    async with AsyncSharedConcurrencyLimiter(store, {"gpu": Shared(1, lease=0.1)}, deadline=30.0) as limiter:
        with pytest.raises(PermitLost):
            await work(limiter, store)
        task = asyncio.current_task()
        assert task
        assert task.cancelling() == 0


async def test_a_block_that_asked_for_it_is_not_cancelled() -> None:
    store = Cut()
    limits = {"gpu": Shared(1, lease=0.1)}
    async with (
        AsyncSharedConcurrencyLimiter(store, limits, deadline=30.0) as limiter,
        limiter.acquire("gpu", cancel=False) as permit,
    ):
        store.is_away = True
        await asyncio.to_thread(await_fact, lambda: permit.lost, "it is lost")
        await asyncio.sleep(0)


async def test_a_cancellation_by_others_stays_one() -> None:
    async with AsyncSharedConcurrencyLimiter(MemoryStore(), {"gpu": 1}) as limiter:
        entered = asyncio.Event()

        async def block() -> None:
            async with limiter.acquire("gpu"):
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(block())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


# The store is away


@pytest.mark.parametrize(
    ("policy", "admits"), [("closed", 0), ("open", 5), ("local", 0), (FailurePolicy.local(instances=2), 2)]
)
@pytest.mark.filterwarnings("ignore:.*instances:UserWarning")
def test_while_the_store_is_away_the_policy_decides(policy: Any, admits: int) -> None:
    store = Cut()
    store.is_away = True
    with limiter_of(store, {"*": 4}, on_failure=policy) as limiter, contextlib.ExitStack() as stack:
        for _ in range(5):
            with contextlib.suppress(StoreUnavailable):
                permit = stack.enter_context(limiter.acquire("gpu"))
                assert permit.token == 0
        assert limiter.statistics().admitted == admits


def test_who_waited_in_vain_for_the_store_is_told_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "THRESHOLD", float("inf"))
    store = Cut()
    store.is_away = True
    with limiter_of(store, {"*": 4}) as limiter:
        for timeout in (0, 0.01):
            with pytest.raises(StoreUnavailable):
                limiter.acquire("gpu", timeout=timeout)


def test_policies_may_differ_by_key() -> None:
    store = Cut()
    store.is_away = True
    with limiter_of(store, {"*": 4}, on_failure={"open:*": "open", "*": "closed"}) as limiter:
        limiter.acquire("open:1").release()
        with pytest.raises(StoreUnavailable):
            limiter.acquire("gpu")


# The end


def test_close_gives_back_what_is_free_and_keeps_what_is_under_way() -> None:
    store = MemoryStore()
    limiter, other = limiter_of(store, {"gpu": 100}), limiter_of(store, {"gpu": 100})
    permits = [limiter.acquire("gpu") for _ in range(10)]
    for permit in permits[1:]:
        permit.release()
    limiter.close()
    await_fact(lambda: held(limiter) == 1, "nine went back")
    with pytest.raises(LimiterClosed):
        limiter.acquire("gpu")
    permits[0].release()
    await_fact(lambda: held(limiter) == 0, "all went back")
    limiter.close()
    other.close()


class Ending(Cut):
    """A store that notes whom it forgets."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[str] = []

    def forget(self, instance: str) -> None:
        self.ended.append(instance)


def test_of_two_threads_that_were_begun_one_ends_the_limiter() -> None:
    """A signal may interrupt the caller that begins one before anybody knows of it. The next caller begins another."""
    store = Ending()
    limiter = limiter_of(store, {"gpu": 1})
    limiter.acquire("gpu").release()
    engine = limiter._engine
    limiter.close()
    await_fact(lambda: store.ended == [engine._instance], "it ended")
    engine._run()
    assert store.ended == [engine._instance]


def test_close_wakes_who_waits() -> None:
    limiter = limiter_of(MemoryStore(), {"gpu": 1})
    with limiter.acquire("gpu"):
        waits = start(lambda: limiter.acquire("gpu"))
        await_fact(lambda: limiter.statistics().keys["gpu"].waiting == 1, "it waits")
        limiter.close()
        with pytest.raises(LimiterClosed):
            waits.result(DEADLINE)


@pytest.mark.usefixtures("without_looks")
@pytest.mark.parametrize("is_dropped", [False, True], ids=["closed", "dropped"])
def test_a_limiter_that_is_closed_or_dropped_leaves_no_thread(is_dropped: bool) -> None:
    limiter = limiter_of(MemoryStore(), {"gpu": Shared(1, lease=3600.0)})
    limiter.acquire("gpu").release()
    await_fact(lambda: not limiter.statistics().keys, "nothing is left of the key")
    thread = limiter._engine._thread
    assert thread
    assert thread.daemon, "else a process whose limiter was never closed would not end"
    if is_dropped:
        gone = weakref.ref(limiter)
        del limiter
        gc.collect()
        assert gone() is None
    else:
        limiter.close()
    thread.join(100)
    assert not thread.is_alive()


def test_close_waits_for_no_permit_that_is_under_way() -> None:
    limiter = limiter_of(MemoryStore(), {"gpu": 1})
    with limiter.acquire("gpu"):
        limiter._engine.close(100.0)
        assert limiter._engine._flushed.is_set()


def test_a_process_that_ends_closes_its_limiters_and_none_of_its_parent() -> None:
    with limiter_of(MemoryStore(), {"gpu": 1}) as limiter:
        limiter.acquire("gpu").release()

        def child() -> bool:
            engine_module._close_all()
            return limiter._engine.is_closed

        assert in_child(child)
        limiter.acquire("gpu").release()


def test_keys_that_are_not_in_use_leave_the_memory() -> None:
    with limiter_of(MemoryStore(), {"*": 1}) as limiter:
        for i in range(50):
            limiter.acquire(f"{i}").release()
        await_fact(lambda: not limiter.statistics().keys, "they left")
        assert limiter.statistics().admitted == 50


@pytest.mark.parametrize("end", ["limiter.acquire('gpu').release()", "limiter.acquire('gpu').release(); del limiter"])
def test_a_process_that_ends_gives_back_what_is_free(valkey: Server, prefix: str, end: str) -> None:
    program = f"""
from batchlimit.shared import SharedConcurrencyLimiter
from batchlimit.shared.engine import Engine
Engine.close.__defaults__ = (60.0,)  # a slow machine gives back late
limiter = SharedConcurrencyLimiter.from_url({valkey.url!r}, {{"gpu": 100}}, prefix={prefix!r}, connect_timeout=30.0)
{end}
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=300)
    with valkey.client() as client:
        fields: Any = client.hkeys(f"{{{prefix}:gpu}}:slots")
    assert sorted(fields) == [b"limit", b"token"]


# Forks


def test_a_forked_child_holds_nothing_and_acquires_for_itself(on_server: OnServer) -> None:
    with on_server({"gpu": 2}) as limiter, limiter.acquire("gpu") as permit:

        def child() -> bool:
            if not permit.lost:
                return False
            permit.release()
            with limiter.acquire("gpu") as own:
                try:
                    limiter.acquire("gpu", timeout=0)
                except ConcurrencyLimited:
                    return not own.lost
            return False

        assert in_child(child)
        assert not permit.lost
        assert held(limiter) >= 1


@pytest.mark.parametrize("limiter", [SharedConcurrencyLimiter, AsyncSharedConcurrencyLimiter])
def test_a_limiter_by_url_has_the_defaults_of_any_other(limiter: Any) -> None:
    made, by_url = signature(limiter.__init__).parameters, signature(limiter.from_url).parameters
    both = set(made) & set(by_url)
    assert {name: by_url[name].default for name in both} == {name: made[name].default for name in both}
    assert both == {"limits", "weight", "deadline", "on_failure"}


def test_a_child_never_ends_what_its_parent_began() -> None:
    """Its destructors may take locks that the parent held."""
    with limiter_of(MemoryStore(), {"gpu": 1}) as limiter:
        limiter.acquire("gpu").release()
        engine: Any = limiter._engine
        own = engine.holdings, engine._thread
        engine.after_fork()
        kept = engine._inherited
        assert (kept["holdings"], kept["_thread"]) == own


def test_a_permit_of_an_outage_is_lost_in_a_forked_child() -> None:
    with (
        SharedConcurrencyLimiter.from_url("redis://127.0.0.1:1", {"gpu": 1}, on_failure="open") as limiter,
        limiter.acquire("gpu", timeout=0) as permit,
    ):
        assert in_child(lambda: permit.lost)
        assert not permit.lost


def test_a_task_that_waited_when_its_process_was_forked_is_told_so_in_the_child() -> None:
    async def begun(limiter: AsyncSharedConcurrencyLimiter) -> Any:
        task = asyncio.ensure_future(limiter.acquire("gpu", timeout=0.01)._entered())
        await asyncio.sleep(0)
        return task

    def is_told() -> bool:
        try:
            loop.run_until_complete(task)
        except LimiterClosed:
            return True
        return False

    loop = asyncio.new_event_loop()
    with limiter_of(store := MemoryStore(), {"gpu": 1}) as other, other.acquire("gpu"):
        limiter = AsyncSharedConcurrencyLimiter(store, {"gpu": 1}, deadline=30.0)
        task = loop.run_until_complete(begun(limiter))
        assert in_child(is_told)
        with pytest.raises(ConcurrencyLimited):
            loop.run_until_complete(task)
        loop.run_until_complete(limiter.close())
    loop.close()
