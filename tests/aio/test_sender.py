"""A store that can be asked without a task, in the turn of the loop in which somebody misses."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from batchlimit import Quota, StoreUnavailable
from batchlimit.batching import FixedBatch
from batchlimit.bucket.messages import Ask, Grant, Groups
from batchlimit.stores import MemoryStore
from batchlimit.stores.protocols import Sent
from tests.aio.loop import virtual_loop
from tests.aio.stage import KEY, TEN, Stage, limiter_on, read

pytestmark = pytest.mark.usefixtures("without_refresher")


class Sender(Stage):
    """Answers what is sent after `delay` seconds (None: never), with what `make` makes of the grant."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = MemoryStore(virtual_loop().time)
        self.delay: float | None = 0.01
        self.make: Callable[[Grant], object] = lambda grant: grant
        self.sent: list[asyncio.Future[Any]] = []

    def send(self, key: str, quota: Quota, ask: Ask) -> Sent[Grant]:
        answer = virtual_loop().create_future()
        self.sent.append(answer)
        grant = self.memory.take(key, quota, ask)

        def arrive() -> None:
            if not answer.done():
                answer.set_result(self.make(grant))

        if self.delay is not None:
            virtual_loop().call_later(self.delay, arrive)
        return answer, read

    def send_spend(self, groups: Groups, *, look: bool, within: float) -> None:
        """It spends nothing."""


async def test_a_miss_is_on_its_way_before_its_caller_waits_and_takes_no_task() -> None:
    stage = Sender()
    limiter = limiter_on(stage)
    caller = limiter.try_acquire(KEY)
    caller.send(None)
    assert len(stage.sent) == 1
    assert asyncio.all_tasks() == {asyncio.current_task()}
    caller.close()
    assert await limiter.try_acquire(KEY)
    assert not stage.asks


async def test_answers_in_time_have_one_timer_for_all_of_them() -> None:
    limiter = limiter_on(Sender(), deadline=5.0)
    for _ in range(3):
        assert await limiter.try_acquire(KEY)
    assert len(looks()) == 1
    await asyncio.sleep(6.0)
    assert looks() == []


def looks() -> list[Any]:
    """The timers that come for what is late."""
    loop: Any = virtual_loop()
    return [timer for timer in loop._scheduled if "give_up" in timer._callback.__name__ and not timer.cancelled()]


async def test_each_call_has_its_own_deadline() -> None:
    stage = Sender()
    limiter = limiter_on(stage, deadline=0.05)
    stage.delay = None
    ends = list[float]()

    async def call(key: str, at: float) -> None:
        await asyncio.sleep(at)
        assert not await limiter.try_acquire(key)
        ends.append(virtual_loop().time() - begun)

    begun = virtual_loop().time()
    await asyncio.gather(call("a", 0.0), call("b", 0.03), call("c", 0.04))
    assert ends == pytest.approx([0.05, 0.08, 0.09])
    assert looks() == []


async def test_a_loop_that_forgot_what_is_late_gives_it_up_with_what_is_sent_later() -> None:
    """A signal handler that raises between the timer and what it calls makes it forget."""
    stage = Sender()
    limiter = limiter_on(stage, deadline=0.05)
    stage.delay = None
    forgotten = asyncio.create_task(limiter.try_acquire("a"))
    await asyncio.sleep(0.01)
    looks()[0].cancel()
    await asyncio.sleep(0.05)
    assert not forgotten.done()
    assert not await limiter.try_acquire("b")
    assert forgotten.done()
    assert not await forgotten


async def test_a_timer_that_comes_late_leaves_what_is_late_to_the_one_that_was_set_meanwhile() -> None:
    """In a busy loop each would set another one."""
    stage = Sender()
    limiter = limiter_on(stage, deadline=0.05)
    stage.delay = None
    callers = [limiter.try_acquire(key) for key in "ab"]
    callers[0].send(None)
    virtual_loop().leap(0.06)
    callers[1].send(None)
    assert len(looks()) == 2
    for _ in range(4):
        await asyncio.sleep(0)
    assert len(looks()) == 1
    for each in callers:
        each.close()


async def test_how_long_an_answer_took_is_finer_than_the_time_of_the_loop() -> None:
    """That of uvloop has whole milliseconds."""
    stage = Sender()
    stage.delay = 0.0
    limiter = limiter_on(stage)
    assert await limiter.try_acquire(KEY)
    assert sum(limiter.statistics().durations.seconds) > 0.0


async def test_who_asks_a_store_that_hangs_leaves_in_time() -> None:
    stage = Sender()
    limiter = limiter_on(stage, deadline=0.05)
    stage.delay = None
    for failures in (1, 2, 3):
        begun = virtual_loop().time()
        with pytest.raises(StoreUnavailable, match=r"stage:// did not answer in time \(0.05 s\)"):
            await limiter.acquire(KEY, timeout=0)
        assert virtual_loop().time() - begun == pytest.approx(0.05)
        assert stage.sent[-1].cancelled()
        assert limiter.statistics().failures == failures
    assert not limiter.statistics().available
    assert not await limiter.try_acquire(KEY)
    assert len(stage.sent) == 3


async def test_an_answer_that_comes_while_the_loop_is_held_up_is_in_time() -> None:
    stage = Sender()
    limiter = limiter_on(stage, deadline=0.05)
    caller = asyncio.create_task(limiter.acquire(KEY))
    await asyncio.sleep(0)
    virtual_loop().leap(3.0)
    await caller


async def test_what_goes_wrong_reaches_the_caller_as_from_take() -> None:
    stage = Sender()
    limiter = limiter_on(stage)
    stage.make = lambda grant: StoreUnavailable("away")
    with pytest.raises(StoreUnavailable, match="away"):
        await limiter.acquire(KEY, timeout=0)
    stage.make = lambda grant: KeyError("of its own")
    with pytest.raises(StoreUnavailable, match="of its own"):
        await limiter.acquire(KEY, timeout=0)
    assert limiter.statistics().failures == 2


async def test_what_a_request_has_in_its_context_is_not_the_probers() -> None:
    mine: ContextVar[str] = ContextVar("mine", default="")
    stage = Sender()
    seen = []

    async def probe() -> None:
        seen.append(mine.get())

    stage.before_probe = probe
    stage.make = lambda grant: StoreUnavailable("away")
    limiter = limiter_on(stage)
    mine.set("a request's own")
    for _ in range(3):
        assert not await limiter.try_acquire(KEY)
    await asyncio.sleep(1.0)
    assert seen == [""]


async def test_an_ask_that_came_to_nothing_is_taken_in_a_task() -> None:
    stage = Sender()
    limiter = limiter_on(stage)
    stage.make = lambda grant: None
    await limiter.acquire(KEY)
    assert [ask.seq for ask in stage.asks] == [1]
    assert limiter.statistics().calls == 1


async def test_who_is_interrupted_while_sending_leaves_the_key_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler may raise there."""
    stage = Sender()
    limiter = limiter_on(stage)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stage, "send", interrupt)
        with pytest.raises(KeyboardInterrupt):
            limiter.try_acquire(KEY).send(None)
    assert limiter.statistics().waiting == 0
    assert await limiter.try_acquire(KEY)
    assert limiter.statistics().admitted == 1


async def test_the_answer_is_waited_for_at_the_end() -> None:
    """It brings tokens that are to go back."""
    stage = Sender()
    limiter = limiter_on(stage, sizer=FixedBatch(5))
    caller = asyncio.create_task(limiter.try_acquire(KEY))
    await asyncio.sleep(0)
    caller.cancel()
    await limiter.close()
    assert stage.backs[-1].tokens > 0


async def test_what_is_owed_at_the_end_is_asked_for_though_it_has_to_be_asked_twice() -> None:
    """The server had lost the script just then, and the debt was forgiven."""
    stage = Sender()
    limiter = limiter_on(stage)
    reservation = await limiter.reserve(KEY, 1)
    await reservation.settle(5)
    assert limiter.statistics().owed == 4
    stage.make = lambda _: None
    await limiter.close()
    assert stage.memory.peek(KEY, TEN).level + (await stage.inner.peek(KEY, TEN)).level == 2 * TEN.burst - 5
