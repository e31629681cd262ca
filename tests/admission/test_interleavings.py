"""Calls that come, wait, fail, give up and are cancelled in any order: no token and no permit is lost or made."""

import asyncio
import contextlib
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimited, Decision, Queue, Quota, RateLimited
from batchlimit.admission import AsyncAdmission
from batchlimit.aio.limiter import AsyncRateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, Keyed
from batchlimit.laws import Fixed
from tests.aio.loop import VirtualLoop, run, virtual_loop
from tests.aio.stage import Stage

SECONDS = st.integers(0, 40).map(lambda tenths: tenths / 10)


class Call(NamedTuple):
    """When a call comes and what it wants (s, tokens), how long it holds, when it is cancelled, if it fails."""

    at: float
    cost: int
    timeout: float | None
    holds: float
    cancelled_at: float | None
    fails: bool


CALLS = st.lists(
    st.builds(Call, SECONDS, st.integers(0, 3), st.none() | SECONDS, SECONDS, st.none() | SECONDS, st.booleans()),
    max_size=12,
)


LATE = Call(0, 1, None, 0, 0.7, False)
"""Is cancelled where its tokens are on the way: they are there for a call that comes later."""


class Ledger(AsyncRateLimiter):
    """Notes what was charged, and what was given back."""

    charged = refunded = 0

    async def acquire_all(self, costs: Any, *, timeout: float | None = None, priority: int = 1) -> None:
        await super().acquire_all(costs, timeout=timeout, priority=priority)
        self.charged += sum(costs.values())

    def take_leased(self, costs: Any) -> Any:
        taken = super().take_leased(costs)
        self.charged += 0 if taken is None else sum(costs.values())
        return taken

    async def decide_all(self, costs: Any) -> dict[str, Decision]:
        decisions = await super().decide_all(costs)
        if all(decisions.values()):
            self.charged += sum(costs.values())
        return decisions

    async def refund(self, key: str, cost: int = 1) -> None:
        self.refunded += cost
        await super().refund(key, cost)


class Failed(Exception):
    """What a call ends in."""


class Story:
    """A list of calls and its effect on both limiters, in the time of the loop."""

    def __init__(self, limit: int, burst: int, *, keyed: bool, travel: float) -> None:
        stage = Stage()
        self._travel = travel
        stage.before = stage.after = self._on_the_way
        self._time = virtual_loop().time
        self.rates = Ledger(stage, Quota(1.0, burst), sizer=FixedBatch(1), clock=self._time)
        self._limit = limit
        self.permits: Any = (
            AsyncKeyedConcurrencyLimiter({"gpu": Keyed(limit, queue=Queue(99, None))}, clock=self._now)
            if keyed
            else AsyncConcurrencyLimiter(Fixed(limit), queue=Queue(99, None), clock=self._now)
        )
        self._name = "gpu" if keyed else ""
        self.both: Any = AsyncAdmission(self.rates, self.permits)
        self.inside = self.most = self.spent = 0
        self.ends: list[str] = []

    def _now(self) -> int:
        return round(self._time() * 1e9)

    async def _on_the_way(self) -> None:
        if self._travel:
            await asyncio.sleep(self._travel)

    @property
    def in_flight(self) -> int:
        told = self.permits.statistics()
        return int(told.in_flight if hasattr(told, "in_flight") else sum(k.in_flight for k in told.patterns.values()))

    async def play(self, calls: list[Call]) -> None:
        tasks = [asyncio.ensure_future(self._call(each)) for each in calls]
        for task, each in zip(tasks, calls, strict=True):
            if each.cancelled_at is not None:
                asyncio.get_running_loop().call_later(each.cancelled_at, task.cancel)
        if tasks:
            await asyncio.wait(tasks)
        while self.both._refunds:
            await asyncio.wait(self.both._refunds)
        assert self.in_flight == self.inside == 0
        assert self.most <= self._limit
        assert self.rates.charged - self.rates.refunded == self.spent
        await self.rates.close()
        await self.permits.close()

    async def _call(self, call: Call) -> None:
        await asyncio.sleep(call.at)
        with contextlib.suppress(Failed, RateLimited, ConcurrencyLimited):
            async with self.both.admit("user", self._name, cost=call.cost, timeout=call.timeout):
                self.spent += call.cost
                self.inside += 1
                self.most = max(self.most, self.inside)
                try:
                    await asyncio.sleep(call.holds)
                    if call.fails:
                        raise Failed
                finally:
                    self.inside -= 1


@given(CALLS, st.integers(1, 3), st.integers(3, 6), st.booleans(), st.sampled_from([0.0, 0.3]))
@example([Call(0, 1, None, 1, None, False)] * 6, 1, 3, True, 0.3)
@example([Call(0, 1, None, 0, None, False), Call(1.3, 1, None, 0, None, False), LATE], 1, 3, False, 0.3)
def test_nothing_is_lost_or_made(calls: list[Call], limit: int, burst: int, keyed: bool, travel: float) -> None:
    async def main() -> None:
        await Story(limit, burst, keyed=keyed, travel=travel).play(calls)

    run(main)


@given(CALLS, st.integers(1, 3), st.integers(3, 6), st.booleans())
def test_nobody_holds_what_he_does_not_use_while_he_waits(
    calls: list[Call], limit: int, burst: int, keyed: bool
) -> None:
    """The answers of the store take no time here: whenever all wait, only calls under way hold permits."""

    class Watched(VirtualLoop):
        story: Story | None = None

        def pass_until_next(self) -> None:
            if self.story is not None:
                assert self.story.in_flight == self.story.inside
            super().pass_until_next()

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        loop.story = story = Story(limit, burst, keyed=keyed, travel=0.0)
        await story.play(calls)

    with asyncio.Runner(loop_factory=Watched) as runner:
        runner.run(main())


@pytest.mark.parametrize("keyed", [False, True])
def test_who_finds_no_permit_takes_no_tokens_for_which_others_are_refused(keyed: bool) -> None:
    """Of four calls three find tokens and one waits for its own; there is a permit for each in time."""

    async def main() -> None:
        story = Story(1, 3, keyed=keyed, travel=0.01)
        await story.play([Call(0, 1, 2, 0.05, None, False)] * 4)
        assert story.spent == 4

    run(main)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_where_both_are_short_everybody_is_admitted_in_the_end(limit: int) -> None:
    """Permits and tokens become free equally often, the hardest case: each call takes a second and a token."""

    async def main() -> float:
        story = Story(limit, 1, keyed=False, travel=0.01)
        begun = virtual_loop().time()
        await story.play([Call(0, 1, None, limit, None, False)] * 30)
        assert story.spent == 30
        return virtual_loop().time() - begun

    # 30 s at least. With a burst of 1 and no slack on either side, who has one of the two often lacks the other.
    assert run(main) <= 45
