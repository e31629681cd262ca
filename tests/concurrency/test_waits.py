"""However many tasks wait for a permit: few are woken in one turn of the loop, and no wait leaves a timer behind."""

import asyncio
import gc
import math
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimited, LimiterClosed, Partitions, Queue
from batchlimit.concurrency.laws import Fixed, Settable
from batchlimit.concurrency.waits import TaskWakeup, Waits, waits_of
from tests.aio.loop import VirtualLoop, run, virtual_loop

pytestmark = pytest.mark.virtual_time
MANY = 1000
AT_ONCE = 64


class Crowd:
    """Tasks that wait for a permit each, and in which turn of the loop each of them went on."""

    def __init__(self, limiter: AsyncConcurrencyLimiter, timeout: float | None = None) -> None:
        self._limiter, self._timeout = limiter, timeout
        self._now = 0
        self.turns: Counter[int] = Counter()
        self.ended: list[str] = []
        self.tasks = [asyncio.create_task(self._call()) for _ in range(MANY)]
        self._clock = asyncio.create_task(self._count())

    async def _count(self) -> None:
        while True:
            self._now += 1
            await asyncio.sleep(0)

    async def _call(self) -> None:
        try:
            (await self._limiter.acquire(timeout=self._timeout)).success()
            self.ended.append("served")
        except (ConcurrencyLimited, LimiterClosed) as error:
            self.ended.append(type(error).__name__)
        self.turns[self._now] += 1

    async def end(self) -> None:
        """Wait until all went on, and check that they did so few at a time."""
        await asyncio.wait(self.tasks)
        self._clock.cancel()
        assert max(self.turns.values()) <= AT_ONCE


def timers() -> int:
    return sum(not timer.cancelled() for timer in virtual_loop()._scheduled)  # type: ignore[attr-defined]


async def test_a_loop_that_lost_a_callback_wakes_all_the_same() -> None:
    """A signal handler that raises within the loop, beside any task, makes it forget what it was about to call."""
    law = Settable(1)
    limiter = AsyncConcurrencyLimiter(law, queue=Queue(MANY, max_wait=None))
    async with limiter.acquire():
        tasks = [asyncio.ensure_future(limiter.acquire()) for _ in range(MANY)]
        await asyncio.sleep(0)
        waits_of(asyncio.get_running_loop()).turns._room = 0
        law.set_limit(MANY + 1)
        for task in tasks:
            (await task).success()


@pytest.mark.parametrize("timeout", [None, 60.0])
async def test_of_many_who_are_served_few_go_on_in_one_turn_of_the_loop(timeout: float | None) -> None:
    law = Settable(1)
    limiter = AsyncConcurrencyLimiter(law, queue=Queue(MANY, max_wait=None))
    async with limiter.acquire():
        crowd = Crowd(limiter, timeout)
        await asyncio.sleep(0)
        assert limiter.statistics().waiting == MANY
        law.set_limit(MANY + 1)
        await crowd.end()
        assert crowd.ended == ["served"] * MANY


def test_of_many_who_time_out_few_go_on_in_one_turn_of_the_loop() -> None:
    async def main() -> None:
        limiter = AsyncConcurrencyLimiter(Fixed(1), queue=Queue(MANY, max_wait=None))
        async with limiter.acquire():
            crowd = Crowd(limiter, 1.0)
            await crowd.end()
            assert crowd.ended == ["ConcurrencyLimited"] * MANY
            assert limiter.statistics().refused == {"queue_timeout": MANY}

    # In the time of the machine: the task that counts turns lets no virtual time pass.
    asyncio.run(main())


async def test_of_many_who_are_sent_away_few_go_on_in_one_turn_of_the_loop() -> None:
    limiter = AsyncConcurrencyLimiter(Fixed(1), queue=Queue(MANY, max_wait=None))
    async with limiter.acquire():
        crowd = Crowd(limiter)
        await asyncio.sleep(0)
        await limiter.close()
        await crowd.end()
        assert crowd.ended == ["LimiterClosed"] * MANY


async def test_who_is_cancelled_leaves_no_timer_behind() -> None:
    limiter = AsyncConcurrencyLimiter(Fixed(1), queue=Queue(MANY, max_wait=None))
    async with limiter.acquire():
        for timeout in (None, 60.0):
            tasks = [asyncio.ensure_future(limiter.acquire(timeout=timeout)) for _ in range(MANY)]
            await asyncio.sleep(0)
            assert limiter.statistics().waiting == MANY
            assert timers() == 1 + (timeout is not None)  # one look for all
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert limiter.statistics().waiting == 0
    assert timers() == 1  # of the minute that nobody waits for any more


@given(now=st.floats(0, 1e5), seconds=st.floats(1e-9, 1e6))
def test_a_timeout_is_never_early_and_late_by_a_64th_at_the_most(now: float, seconds: float) -> None:
    async def main() -> None:
        loop.now = now
        turn, pauses = TaskWakeup(), []
        begin = loop.now
        await turn.wait(seconds, lambda: math.inf, lambda: pauses.append(1))
        rounding = 1e-6 + 2 * math.ulp(now + seconds) + loop._clock_resolution  # type: ignore[attr-defined]
        assert -rounding <= loop.now - begin - seconds <= seconds / 64 + rounding
        assert not pauses

    loop = VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())


async def test_all_who_wait_for_a_share_to_be_lent_look_once() -> None:
    """One look a pause, however many wait; it comes when the share is lent."""
    loop = virtual_loop()
    limiter = AsyncConcurrencyLimiter(
        Fixed(1),
        partitions=Partitions({"live": 1.0}, strict=True),
        queue=Queue(MANY, max_wait=None),
        clock=lambda: round(loop.time() * 1e9),
    )
    (await limiter.acquire("live")).success()
    begin = loop.time()
    tasks = [asyncio.ensure_future(limiter.acquire("batch")) for _ in range(MANY)]
    await asyncio.sleep(0)
    assert timers() == 1
    for task in tasks:
        (await task).success()
    assert loop.time() - begin == pytest.approx(1.0, abs=0.01)
    await asyncio.sleep(0)
    assert not timers()


async def test_who_waits_looks_again_after_each_pause_until_woken() -> None:
    loop, looks = virtual_loop(), []
    turns = [TaskWakeup(), TaskWakeup()]

    def look() -> None:
        looks.append(loop.time() - 1000)
        if len(looks) == 3:
            turns[0].wake()
        if len(looks) == 5:
            turns[1].wake()

    await asyncio.gather(*(turn.wait(math.inf, lambda: 0.5, look) for turn in turns))
    await asyncio.sleep(9)
    assert looks == [0.5, 1.0, 1.5, 2.0, 2.5]


async def test_a_look_that_fails_is_followed_by_the_next() -> None:
    turn, looks = TaskWakeup(), []
    virtual_loop().set_exception_handler(lambda *_: None)

    def look() -> None:
        looks.append(1)
        if len(looks) < 3:
            raise ZeroDivisionError
        turn.wake()

    await turn.wait(math.inf, lambda: 1.0, look)
    assert len(looks) == 3


async def test_a_loop_that_forgot_to_look_does_so_when_the_next_one_waits() -> None:
    """As one does where a signal handler raises just then: no place that was lost came back to those who wait."""
    turns, looks = [TaskWakeup(), TaskWakeup()], []

    def look() -> None:
        looks.append(asyncio.get_running_loop().time())

    first = asyncio.create_task(turns[0].wait(math.inf, lambda: 1.0, look))
    await asyncio.sleep(0)
    next(iter(waits_of(asyncio.get_running_loop())._looks.values())).timer.cancel()
    await asyncio.sleep(9)
    assert looks == []
    second = asyncio.create_task(turns[1].wait(math.inf, lambda: 1.0, look))
    await asyncio.sleep(2.5)
    assert len(looks) == 3
    for turn in turns:
        turn.wake()
    await asyncio.gather(first, second)


def test_a_loop_that_is_gone_is_forgotten() -> None:
    """The waits of a loop live as long as it does, and no longer."""
    from batchlimit.concurrency import waits

    async def main() -> None:
        turn = TaskWakeup()
        with suppress(TimeoutError):
            await asyncio.wait_for(turn.wait(1.0, lambda: math.inf, print), 0.5)
        assert isinstance(waits.waits_of(asyncio.get_running_loop()), Waits)

    before = len(waits._all)
    run(main)
    gc.collect()
    assert len(waits._all) <= before
