"""The hit path of try_acquire is written out by hand: held against the way through the reservoir here."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchlimit import AsyncRateLimiter, Quota, StoreUnavailable
from batchlimit.base.waiting import NO_WAIT
from batchlimit.batching import BatchSizer, FixedBatch, GrowingBatch, TimeBatch
from batchlimit.bucket.messages import Ask
from batchlimit.reservoir.reservoir import Reservoir
from tests.aio.loop import run, virtual_loop
from tests.aio.stage import KEY, Stage
from tests.depth import depth

QUOTA = Quota(20.0, 40)
"""Leases last 0.8 s."""


class World:
    """A limiter on a store that takes `round_trip` seconds to answer, and may be away."""

    def __init__(self, sizer: BatchSizer) -> None:
        self.stage = Stage()
        self.stage.before = self._travel
        self.round_trip = 0.0
        self.reachable = True
        self.limiter = AsyncRateLimiter(self.stage, QUOTA, sizer=sizer, clock=virtual_loop().time)
        self._thefts = 0

    async def _travel(self) -> None:
        virtual_loop().leap(self.round_trip)
        if not self.reachable:
            raise StoreUnavailable("away")

    async def try_acquire(self, cost: int) -> bool:
        return await self.limiter.try_acquire(KEY, cost)

    @property
    def reservoir(self) -> Reservoir:
        return self.limiter._registry.entry(KEY).reservoir

    async def steal(self, tokens: int) -> None:
        """Another instance spends at the same bucket."""
        self._thefts += 1
        ask = Ask("thief", self._thefts, need=0, queued=tokens, want=tokens)
        await self.stage.inner.take(KEY, QUOTA, ask)

    def state(self) -> dict[str, Any]:
        free, lease = self.reservoir.tokens, self.reservoir.state.lease
        tokens = (free.available, lease.reserved_for_waiters, lease.pending, free.low_watermark, free.expires)
        return {"tokens": tokens, "statistics": self.limiter.statistics(), "asks": len(self.stage.asks)}


class Bound(World):
    """The same by the limiter of the one key."""

    def __init__(self, sizer: BatchSizer) -> None:
        super().__init__(sizer)
        self._bucket = self.limiter.bucket(KEY)

    async def try_acquire(self, cost: int) -> bool:
        return await self._bucket.try_acquire(cost)


class SpelledOut(World):
    """The same without the shortcut."""

    async def try_acquire(self, cost: int) -> bool:
        entry = self.limiter._registry.entry(KEY)
        if entry.take(cost) != NO_WAIT:
            return True
        if entry.reservoir.forecast.denied_for(cost, virtual_loop().time()):
            entry.reservoir.tokens.refused += cost
            return False
        try:
            return (await self.limiter._admit(KEY, cost, NO_WAIT)).admitted
        except StoreUnavailable:
            return False


def _calls(cost: int, times: int) -> Callable[[World], Awaitable[object]]:
    async def play(world: World) -> list[bool | str]:
        return [await _verdict(world, cost) for _ in range(times)]

    return play


async def _verdict(world: World, cost: int) -> bool | str:
    try:
        return await world.try_acquire(cost)
    except StoreUnavailable as error:
        return str(error)


def _doing(change: Callable[[World], object]) -> Callable[[World], Awaitable[object]]:
    async def play(world: World) -> None:
        change(world)

    return play


STEPS = st.one_of(
    st.builds(_calls, st.integers(1, 40), st.integers(1, 3)),
    st.builds(_calls, st.integers(1, 3), st.integers(1, 30)),
    st.sampled_from([0.001, 0.05, 0.4, 0.79, 0.8, 0.81, 3.0]).map(lambda s: _doing(lambda _: virtual_loop().leap(s))),
    st.sampled_from([0.0, 0.01, 0.3, 0.9]).map(lambda s: _doing(lambda world: setattr(world, "round_trip", s))),
    st.booleans().map(lambda here: _doing(lambda world: setattr(world, "reachable", here))),
    st.integers(1, 40).map(lambda tokens: lambda world: world.steal(tokens)),
)
SIZERS = st.sampled_from([TimeBatch(), FixedBatch(1), FixedBatch(7), FixedBatch(40), GrowingBatch(first=3)])


async def _story(
    kind: type[World], sizer: BatchSizer, steps: list[Callable[[World], Awaitable[object]]]
) -> list[tuple[object, dict[str, Any]]]:
    world = kind(sizer)
    return [(await step(world), world.state()) for step in steps]


@pytest.mark.usefixtures("without_refresher", "without_breaker")
@settings(max_examples=depth(50, 200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SIZERS, st.lists(STEPS, max_size=30))
def test_the_shortcut_does_what_the_rules_do(
    sizer: BatchSizer, steps: list[Callable[[World], Awaitable[object]]]
) -> None:
    kinds = (World, Bound, SpelledOut)
    by_hand, bound, spelled_out = (run(lambda kind=kind: _story(kind, sizer, steps)) for kind in kinds)  # type: ignore[misc]
    assert by_hand == bound == spelled_out


async def test_who_was_stopped_after_it_took_a_token_spends_nothing_of_a_dead_lease(without_refresher: None) -> None:
    """The clock is read after the token is taken, as in the threaded API."""
    world = World(FixedBatch(20))
    assert [await world.try_acquire(1) for _ in range(2)] == [True, True]
    taken = []

    def stopped() -> float:
        taken.append(world.reservoir.tokens.available)
        virtual_loop().leap(2.0)
        world.limiter._clock = virtual_loop().time
        return virtual_loop().time()

    world.limiter._clock = stopped
    assert await world.try_acquire(1)
    assert taken == [17]
    assert len(world.stage.asks) == 2
    assert world.limiter.statistics().admitted == 3
