"""Tasks that spend for keys that are not in use go in one call a turn of the loop, and nobody waits for ever."""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from typing import Any

import pytest

from batchlimit import AsyncRateLimiter, FailurePolicy, LimiterClosed, Quota, StoreUnavailable
from batchlimit.aio import spends
from batchlimit.aio.guarded_store import GuardedStore
from batchlimit.aio.spends import Spends
from batchlimit.base.waking import HEARTBEAT
from batchlimit.batching import FixedBatch, TimeBatch
from batchlimit.bucket.messages import Ask, Groups, SpendReply
from batchlimit.errors import BucketUnavailable
from batchlimit.keyspace.spending import Spending
from batchlimit.stores import MemoryStore
from batchlimit.stores.memory import AsyncMemoryStore
from batchlimit.stores.protocols import Sent
from tests.aio.loop import run, virtual_loop
from tests.aio.stage import KEY, TEN, Gate, Stage, away, limiter_on, nothing, read
from tests.servers import Server
from tests.sync.stage import Clock

pytestmark = pytest.mark.usefixtures("without_refresher")


class Till(Stage):
    """A Stage that spends, too: it notes which groups come in which call."""

    spends_together = True

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.memory = MemoryStore(clock or virtual_loop().time)
        super().__init__(AsyncMemoryStore(self.memory))
        self.calls: list[list[list[str]]] = []

    async def spend(self, groups: Groups, *, look: bool = False, within: float = math.inf) -> SpendReply:
        self.calls.append([[each.key for each in group] for group in groups])
        await self.before()
        reply = self.memory.spend(groups, look=look, within=within)
        await self.after()
        return reply


class Sender(Till):
    """Spends in the turn of the loop; an answer comes after `delay` seconds (None: never)."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        super().__init__(clock)
        self.delay: float | None = 0.01
        self.sent: list[asyncio.Future[Any]] = []

    def send(self, key: str, quota: Quota, ask: Ask) -> None:
        """It is asked by tasks."""

    def send_spend(self, groups: Groups, *, look: bool = False, within: float = math.inf) -> Sent[SpendReply] | None:
        self.calls.append([[each.key for each in group] for group in groups])
        answer = asyncio.get_running_loop().create_future()
        self.sent.append(answer)
        reply = self.memory.spend(groups, look=look, within=within)

        def arrive() -> None:
            if not answer.done():
                answer.set_result(reply)

        if self.delay is not None:
            asyncio.get_running_loop().call_later(self.delay, arrive)
        return answer, read


TILLS = pytest.mark.parametrize("make", [Till, Sender], ids=["by a task", "in the turn of the loop"])
Make = Callable[[], Till]


async def all_of(limiter: AsyncRateLimiter, keys: str) -> list[bool]:
    return await asyncio.gather(*[limiter.try_acquire(key) for key in keys])


def level(till: Till, key: str = KEY) -> int:
    return till.memory.peek(key, TEN).level


@TILLS
async def test_one_call_alone_leaves_nothing_in_memory_but_a_snapshot(make: Make) -> None:
    till = make()
    limiter = limiter_on(till)
    assert [await limiter.try_acquire(f"key-{n}") for n in range(5)] == [True] * 5
    assert till.calls == [[[f"key-{n}"]] for n in range(5)]
    assert limiter._entries == {}
    seen = limiter.statistics()
    assert (seen.keys, seen.admitted, seen.calls, seen.held, seen.waiting) == (5, 5, 5, 0, 0)
    await limiter.close()
    assert (till.asks, till.backs) == ([], [])


@TILLS
async def test_what_is_asked_in_one_turn_goes_in_one_call(make: Make) -> None:
    till = make()
    limiter = limiter_on(till)
    assert await all_of(limiter, "abcde") == [True] * 5
    assert till.calls == [[["a"], ["b"], ["c"], ["d"], ["e"]]]
    assert (limiter.statistics().keys, limiter._entries) == (5, {})
    told = await asyncio.gather(limiter.decide("a", 2), limiter.decide_all({"x": 1, "y": 2}))
    assert (told[0].remaining, {key: each.remaining for key, each in told[1].items()}) == (7, {"x": 9, "y": 8})
    assert till.calls[1:] == [[["a"], ["x", "y"]]]


async def test_who_comes_alone_asks_at_once_and_those_who_come_together_go_in_one_call() -> None:
    till = Sender()
    limiter = limiter_on(till)
    assert await limiter.try_acquire("a")
    alone = asyncio.create_task(limiter.try_acquire("b"))
    await asyncio.sleep(0)  # it has run, and no turn of the loop began since
    assert till.calls == [[["a"]], [["b"]]]
    assert await alone
    for keys in ("cd", "ef", "g", "h"):
        assert all(await all_of(limiter, keys))
    assert till.calls[2:] == [[["c"]], [["d"]], [["e"], ["f"]], [["g"]], [["h"]]]


async def test_a_key_that_comes_into_use_asks_after_what_was_spent_before() -> None:
    till = Sender()
    limiter = limiter_on(till, sizer=TimeBatch())
    assert await asyncio.wait_for(all_of(limiter, "aaabbbccc"), 60.0) == [True] * 9
    assert till.calls == [[["a"], ["a"]], [["b"], ["b"]], [["c"], ["c"]]]
    assert len(till.asks) == 3


async def test_a_spend_that_is_sent_takes_no_task() -> None:
    till = Sender()
    limiter = limiter_on(till)
    caller = limiter.try_acquire(KEY)
    caller.send(None)
    await asyncio.sleep(0)
    assert len(till.sent) == 1
    assert asyncio.all_tasks() == {asyncio.current_task()}
    caller.close()
    await asyncio.sleep(0.02)
    assert limiter.statistics().waiting == 0


async def test_no_call_has_more_buckets_than_others_can_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spends, "_MOST", 3)
    till = Till()
    limiter = limiter_on(till)
    calls: list[Any] = [limiter.decide_all(dict.fromkeys("vwxyz", 1)), *map(limiter.try_acquire, "ab")]
    several, *_ = await asyncio.gather(*calls, limiter.decide_all({"m": 1, "n": 1}))
    assert all(several.values())
    assert till.calls == [[["v", "w", "x", "y", "z"]], [["a"], ["b"]], [["m", "n"]]]


async def test_a_store_that_spends_one_key_at_a_time_is_asked_so() -> None:
    till = Till()
    till.spends_together = False
    limiter = limiter_on(till)
    assert await all_of(limiter, "ab") == [True, True]
    assert till.calls == [[["a"]], [["b"]]]
    assert all((await limiter.decide_all({"x": 1, "y": 1})).values())
    assert len(till.calls) == 2


@TILLS
@pytest.mark.parametrize("turns", range(6))
async def test_what_is_charged_for_a_caller_that_was_cancelled_comes_back(make: Make, turns: int) -> None:
    """Wherever it is then: before the call leaves, under way, or answered and not yet awake."""
    till = make()
    if isinstance(till, Sender):
        till.delay = 0.0
    limiter = limiter_on(till)
    caller = asyncio.create_task(limiter.try_acquire(KEY, 3))
    for _ in range(turns):
        await asyncio.sleep(0)
    was_done = caller.done()
    caller.cancel()
    await asyncio.wait([caller])
    await asyncio.sleep(0.1)
    assert limiter.statistics().waiting == 0
    await limiter.close()
    assert level(till) == (7 if was_done else 10)


@TILLS
async def test_a_caller_that_is_cancelled_leaves_those_beside_it_alone(make: Make) -> None:
    till = make()
    limiter = limiter_on(till)
    callers = [asyncio.create_task(limiter.decide_all({key: 1, key + "'": 2})) for key in "abc"]
    await asyncio.sleep(0)
    callers[0].cancel()
    assert all((await callers[1]).values())
    assert all((await callers[2]).values())
    await asyncio.sleep(0.1)
    await limiter.close()
    assert [level(till, key) for key in ("a", "a'", "b", "b'")] == [10, 10, 9, 8]


@TILLS
async def test_those_beside_a_cancelled_caller_of_a_closed_limiter_hear_of_the_end(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    till = make()
    gate = till.before = Gate()
    limiter = limiter_on(till)
    callers = [asyncio.create_task(limiter.acquire(key)) for key in "abc"]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    callers[0].cancel()
    closing = asyncio.create_task(limiter.close())
    await asyncio.sleep(0)
    gate.open()
    with caplog.at_level(logging.ERROR, "asyncio"):
        done, _ = await asyncio.wait(callers)
        await closing
    assert len(done) == 3
    assert [type(each.exception()) for each in callers[1:]] == [LimiterClosed] * 2
    assert not caplog.records


async def test_an_error_of_the_store_reaches_each_caller_by_its_own_policy() -> None:
    till = Till()
    policies: Any = {"open": "open", "local": FailurePolicy.local(instances=5), "*": "closed"}
    limiter = limiter_on(till, on_failure=policies)
    till.before = away
    is_open, local, closed = await asyncio.gather(
        *[limiter.decide(key) for key in ("open", "local", "closed")], return_exceptions=True
    )
    assert is_open.source == local.source == "fallback"  # type: ignore[union-attr]
    assert is_open.allowed  # type: ignore[union-attr]
    assert isinstance(closed, StoreUnavailable)
    assert closed.key == "closed"
    assert len(till.calls) == 1
    assert limiter.statistics().failures == 1


async def test_who_spends_at_a_store_that_hangs_leaves_in_time() -> None:
    till = Sender()
    till.delay = None
    limiter = limiter_on(till, deadline=0.05)
    begun = virtual_loop().time()
    found = await asyncio.gather(*[limiter.acquire(key, timeout=0) for key in "abc"], return_exceptions=True)
    assert [type(each) for each in found] == [StoreUnavailable] * 3
    assert virtual_loop().time() - begun == pytest.approx(0.05)
    assert (len(till.sent), limiter.statistics().failures, limiter.statistics().waiting) == (1, 1, 0)


@pytest.mark.parametrize(
    "reply",
    [
        lambda _: ZeroDivisionError("a mistake"),
        lambda reply: reply._replace(groups=reply.groups[:-1]),
        lambda reply: reply._replace(groups=[(*group, *group) for group in reply.groups]),
        lambda _: "nothing",
    ],
    ids=["an error", "too few groups", "too many buckets", "no reply"],
)
async def test_a_store_that_answers_nonsense_leaves_nobody_waiting(reply: Callable[[Any], Any]) -> None:
    till = Till()
    right = till.memory.spend

    def wrong(groups: Groups, *, look: bool = False, within: float = math.inf) -> Any:
        told = reply(right(groups, look=look, within=within))
        if isinstance(told, Exception):
            raise told
        return told

    till.memory.spend = wrong  # type: ignore[method-assign]
    limiter = limiter_on(till)
    found = await asyncio.gather(*[limiter.acquire(key, timeout=0) for key in "abc"], return_exceptions=True)
    assert [each is None or isinstance(each, StoreUnavailable) for each in found] == [True] * 3
    assert limiter.statistics().waiting == 0


async def test_buckets_that_cannot_be_served_together_are_asked_one_by_one() -> None:
    """A cluster of one node, asked as a server, has all keys and refuses those of two slots in one script."""
    till = Till()

    async def refuse() -> None:
        if till.calls[-1:] and not till.asks:
            raise BucketUnavailable("CROSSSLOT Keys in request don't hash to the same slot", code="CROSSSLOT")

    till.before = refuse
    limiter = limiter_on(till)
    assert await all_of(limiter, "abc") == [True] * 3
    till.before = nothing
    assert (len(till.calls), len(till.asks)) == (1, 3)
    assert await all_of(limiter, "de") == [True] * 2
    assert till.calls[1:] == [[["d"]], [["e"]]]
    assert limiter.statistics().failures == 0


async def test_callers_ask_again_after_a_signal_handler_raised_while_their_call_was_sent() -> None:
    """The loop goes on where a program catches it: none of them waits for an answer that nobody has asked for."""
    till = Sender()
    limiter = limiter_on(till)
    send, loop, raised = till.send_spend, virtual_loop(), list[object]()

    def interrupted(groups: Groups, *, look: bool = False, within: float = math.inf) -> Any:
        till.send_spend = send  # type: ignore[method-assign]
        raise asyncio.CancelledError  # a BaseException that a loop survives

    till.send_spend = interrupted  # type: ignore[method-assign]
    loop.set_exception_handler(lambda _loop, context: raised.append(context))
    assert await asyncio.wait_for(all_of(limiter, "abc"), 60.0) == [True] * 3
    assert limiter.statistics().waiting == 0


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (lambda registry: registry.store._outages, "took"),
        (lambda _: GuardedStore, "_outcome"),
        (lambda registry: registry.spends, "_clock"),
        (lambda _: Spending, "hear_of"),
    ],
    ids=["as it comes", "as it is read", "as the clock is", "as it is settled"],
)
async def test_callers_hear_of_their_answers_though_a_signal_handler_raised_when_they_came(
    monkeypatch: pytest.MonkeyPatch, owner: Callable[[Any], object], name: str
) -> None:
    """The one whose answer it kept back asks again: nobody waits for ever."""
    till = Sender()
    limiter = limiter_on(till)

    def interrupted(*_: Any) -> Any:
        monkeypatch.undo()
        raise asyncio.CancelledError  # a BaseException that a loop survives

    monkeypatch.setattr(owner(limiter._registry), name, interrupted)
    virtual_loop().set_exception_handler(lambda *_: None)
    assert await asyncio.wait_for(all_of(limiter, "abc"), 60.0) == [True] * 3
    assert limiter.statistics().waiting == 0


async def test_a_loop_that_forgot_to_send_does_so_for_the_next_caller() -> None:
    """As one does where a signal handler raises just then: nobody was served at a key not in use from then on."""
    till = Sender()
    limiter = limiter_on(till)
    assert await limiter.try_acquire("a")
    queue = limiter._registry.spends
    queue._loop, queue._lone, queue._lost_at = asyncio.get_running_loop(), None, virtual_loop().time() + HEARTBEAT
    forgotten = asyncio.create_task(limiter.try_acquire("b"))
    await asyncio.sleep(2 * HEARTBEAT)
    assert not forgotten.done()
    assert await asyncio.wait_for(all_of(limiter, "cd"), 60.0) == [True] * 2
    assert await forgotten


async def test_a_call_that_is_nested_too_deep_to_plan_a_turn_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    till = Till()
    async with limiter_on(till) as limiter:
        assert await limiter.try_acquire("before")
        loop = asyncio.get_running_loop()
        with monkeypatch.context() as deep:
            deep.setattr(loop, "call_soon", raising(RecursionError))
            deep.setattr(limiter._registry.spends, "_lone", None)
            with pytest.raises(RecursionError):
                await limiter.try_acquire(KEY)
        assert await limiter.try_acquire("another")
    assert till.calls == [[["before"]], [["another"]]]


def raising(error: type[Exception]) -> Callable[..., None]:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    return fail


@TILLS
async def test_a_limiter_that_is_closed_meanwhile_fails_its_callers(make: Make) -> None:
    till = make()
    limiter = limiter_on(till)
    callers = [asyncio.create_task(limiter.acquire(key)) for key in "ab"]
    await asyncio.sleep(0)
    await limiter.close()
    for each in callers:
        with pytest.raises(LimiterClosed):
            await each


@pytest.mark.parametrize("turns", range(4))
def test_a_loop_that_ends_with_spends_in_flight_leaves_the_limiter_to_the_next(
    turns: int, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    till = Till(Clock())
    limiter = AsyncRateLimiter(till, TEN, sizer=FixedBatch(1), clock=Clock())

    async def leave() -> None:
        till.before = lambda: asyncio.sleep(1.0)
        tasks.extend(asyncio.create_task(limiter.try_acquire(key)) for key in "ab")
        for _ in range(turns):
            await asyncio.sleep(0)

    tasks: list[asyncio.Task[bool]] = []
    with caplog.at_level(logging.ERROR, "asyncio"):
        run(leave)
        assert all(each.cancelled() for each in tasks)
        assert limiter.statistics().waiting == 0

        async def go_on() -> None:
            till.before = nothing
            assert await all_of(limiter, "abc") == [True] * 3
            assert limiter.statistics().waiting == 0
            await limiter.close()

        run(go_on)
    assert not caplog.records
    assert not [each for each in recwarn if "never awaited" in str(each.message)]


def test_a_loop_that_was_closed_with_a_turn_to_come_leaves_the_limiter_to_the_next() -> None:
    """Not by asyncio.run: nothing is cancelled, and nothing is sent."""
    till = Sender(Clock())
    till.delay = None
    limiter = AsyncRateLimiter(till, TEN, sizer=FixedBatch(1), clock=Clock())
    loop = asyncio.new_event_loop()
    caller: Any = None

    async def begin() -> None:
        nonlocal caller
        caller = limiter.try_acquire(KEY)
        caller.send(None)

    loop.run_until_complete(begin())
    assert limiter.statistics().waiting == 1
    loop.close()

    async def go_on() -> None:
        till.delay = 0.0
        assert await limiter.try_acquire(KEY)
        assert limiter.statistics().waiting == 0
        await limiter.close()

    asyncio.run(go_on())
    with contextlib.suppress(RuntimeError):
        caller.close()


@pytest.mark.real_time
@pytest.mark.parametrize(("tasks", "calls"), [(20, [20]), (64, [32, 32]), (1000, [*[128] * 7, 104])], ids=str)
async def test_tasks_that_come_at_once_make_few_calls_but_two_if_they_are_many(
    tasks: int, calls: list[int], valkey: Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    send = Spends._send

    def noted(queue: Spends, some: Any) -> None:
        sizes.append(len(some))
        send(queue, some)

    monkeypatch.setattr(Spends, "_send", noted)
    limiter = AsyncRateLimiter.from_url(valkey.url, Quota(0.001, 1), prefix=prefix, sizer=FixedBatch(1))
    each = [limiter.try_acquire(f"key-{n % (tasks // 2)}") for n in range(tasks)]
    assert sum(await asyncio.gather(*each)) == tasks // 2
    assert sizes == calls
    await limiter.close()
