"""The hit path of try_acquire is written out by hand in either API, its misses go a short way: both are held against
the reservoir's own methods here.
"""

import subprocess
import sys
from collections.abc import Callable
from itertools import repeat
from operator import length_hint
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchlimit import Quota, RateLimiter, StoreUnavailable
from batchlimit.base.histogram import Durations
from batchlimit.base.key import check_cost
from batchlimit.base.waiting import NO_WAIT
from batchlimit.base.waking import Event
from batchlimit.batching import BatchSizer, FixedBatch, GrowingBatch, TimeBatch
from batchlimit.bucket.messages import Ask, GiveBack
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.tokens import FreeTokens
from batchlimit.reservoir.waiter import Admit, Fetch, Waiter
from batchlimit.stores import MemoryStore
from tests.apis.blocking import Api, Blocking
from tests.awaiting import awaited
from tests.depth import depth
from tests.fields import fields_of
from tests.sync.stage import KEY, Clock, Stage, nothing

QUOTA = Quota(20.0, 40)
"""Leases last 0.8 s."""


class World:
    """A limiter with a store and a clock of its own, whose store takes `round_trip` seconds to answer."""

    def __init__(self, api: Api, sizer: BatchSizer) -> None:
        self.clock = Clock()
        self.stage = Stage(MemoryStore(self.clock))
        self.stage.before = self._travel
        self.round_trip = 0.0
        self.reachable = True
        self.limiter: Any = api(self.stage, QUOTA, sizer=sizer, clock=self.clock)
        self.inner: Any = getattr(self.limiter, "_inner", self.limiter)
        self.is_of_threads = isinstance(self.limiter, RateLimiter)
        self._thefts = 0

    def _travel(self) -> None:
        self.clock.now += self.round_trip
        if not self.reachable:
            raise StoreUnavailable("away")

    def try_acquire(self, cost: int) -> bool:
        return self.often(cost, 1)[0]

    def often(self, cost: int, times: int) -> list[bool]:
        if self.is_of_threads:
            return [self.once(cost) for _ in range(times)]

        async def often() -> list[bool]:
            return [await self.once(cost) for _ in range(times)]

        found: list[bool] = awaited(often)
        return found

    def once(self, cost: int) -> Any:
        self.inner._registry.live_entry(KEY)  # a key that is in use: of others see test_spends.py
        return self.inner.try_acquire(KEY, cost)

    @property
    def reservoir(self) -> Reservoir:
        entry = self.inner._registry.entry
        found: Reservoir = (entry(KEY) if self.is_of_threads else awaited(entry, KEY)).reservoir
        return found

    def tend(self) -> None:
        """Do what the background thread would do now; the timer of a loop comes by itself."""
        if not self.is_of_threads:
            return
        entry = self.inner._registry.entry(KEY)
        try:
            match entry.tend():
                case Fetch() as fetch:
                    entry.fetch(fetch)
                case GiveBack() as back:
                    entry.give_back(back)
                case _:
                    pass
        except StoreUnavailable:
            pass

    def steal(self, tokens: int) -> None:
        """Another instance spends at the same bucket."""
        self._thefts += 1
        self.stage.inner.take(KEY, QUOTA, Ask("thief", self._thefts, need=0, queued=tokens, want=tokens))

    def state(self) -> dict[str, Any]:
        """Everything that may differ: the figures, and each field of the reservoir that is not the instance's name."""
        reservoir = self.reservoir
        parts = {name: _plain(getattr(reservoir, name)) for name in ("requests", "lifecycle")}
        parts["outage"] = repr(reservoir.outage)  # an error equals itself alone
        shown: dict[str, Any] = _plain(reservoir.state)
        shown["tokens"]["lock_free"] += shown["tokens"].pop("free")  # who takes by hand takes first what is lock-free
        del shown["tokens"]["_singly"]  # nor does a step of what is lock-free tell that somebody came
        shown |= parts
        return shown | {"statistics": self.limiter.statistics(), "calls": len(self.stage.asks), "now": self.clock.now}


def _plain(value: Any) -> Any:
    """An object of the core by its fields, what is laid out by how much that is, anything else as it is."""
    if isinstance(value, repeat):
        return length_hint(value)
    if isinstance(value, Durations):
        return value.read()
    slots = fields_of(type(value))
    if not slots or not type(value).__module__.startswith("batchlimit.") or isinstance(value, Quota):
        return value
    return {name: _plain(getattr(value, name)) for name in slots if name not in IGNORED}


IGNORED = {"_awake", "_tokens", "_instance", "_options", "_state", "_admission", "_requests"}


class Bound(World):
    """The same by the limiter of the one key."""

    def once(self, cost: int) -> Any:
        self.inner._registry.live_entry(KEY)
        return self.inner.bucket(KEY).try_acquire(cost)


class SpelledOut(World):
    """The same by the reservoir's own methods, one at a time."""

    def once(self, cost: int) -> Any:
        return self._in_thread(cost) if self.is_of_threads else self._in_task(cost)

    def _in_thread(self, cost: int) -> bool:
        entry = self.inner._registry.live_entry(KEY)
        reservoir = entry.reservoir
        if entry.locked(lambda: reservoir.admission.deny(cost, self.clock())):
            return False
        if entry.take(cost) != NO_WAIT:
            return True
        check_cost(cost, reservoir.state.largest_cost, KEY)
        waiter = Waiter(cost, NO_WAIT, Event())
        entry.locked(lambda: reservoir.admission.join(waiter))
        while isinstance(step := entry.locked(lambda: reservoir.step(waiter, self.clock())), Fetch):
            entry.fetch(step)
        return isinstance(step, Admit)

    async def _in_task(self, cost: int) -> bool:
        entry = self.inner._registry.live_entry(KEY)
        if entry.take(cost) != NO_WAIT:
            return True
        if entry.reservoir.forecast.denied_for(cost, self.clock()):
            entry.reservoir.tokens.refused += cost
            return False
        try:
            return bool((await self.inner._admit(KEY, cost, NO_WAIT)).admitted)
        except StoreUnavailable:
            return False


def _calls(cost: int, times: int) -> Callable[[World], object]:
    return lambda world: world.often(cost, times)


def _pass_time(seconds: float) -> Callable[[World], object]:
    return lambda world: world.clock.pass_by(seconds)


def _setting(name: str) -> Callable[[Any], Callable[[World], object]]:
    return lambda value: lambda world: setattr(world, name, value)


def _refund(tokens: int) -> Callable[[World], object]:
    """Refund admitted tokens, and only within the lease: else the bucket takes part."""

    def run(world: World) -> None:
        reservoir = world.reservoir
        room = reservoir.state.lease._recorded - reservoir.tokens.available
        if world.clock() < reservoir.tokens.expires and room >= tokens:
            world.limiter.refund(KEY, tokens)

    return run


STEPS = st.one_of(
    st.builds(_calls, st.integers(1, 40), st.integers(1, 3)),
    st.builds(_calls, st.integers(1, 3), st.integers(1, 30)),
    st.sampled_from([0.001, 0.01, 0.05, 0.1, 0.4, 0.79, 0.8, 0.81, 1.0, 3.0, 60.0]).map(_pass_time),
    st.sampled_from([0.0, 0.001, 0.01, 0.3, 0.9]).map(_setting("round_trip")),
    st.builds(_refund, st.integers(1, 10)),
    st.builds(lambda n: lambda world: world.steal(n), st.integers(1, 40)),
    st.booleans().map(_setting("reachable")),
    st.just(World.tend),
)
SIZERS = st.sampled_from([TimeBatch(), FixedBatch(1), FixedBatch(7), FixedBatch(40), GrowingBatch(first=3)])


@pytest.mark.usefixtures("without_refresher", "without_breaker")
@settings(max_examples=depth(50, 300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizer=SIZERS, steps=st.lists(STEPS, max_size=40))
def test_the_shortcut_does_what_the_methods_do(
    api: Api, sizer: BatchSizer, steps: list[Callable[[World], object]]
) -> None:
    by_hand, bound, spelled_out = (kind(api, sizer) for kind in (World, Bound, SpelledOut))
    for step in steps:
        assert step(by_hand) == step(bound) == step(spelled_out)
        assert by_hand.state() == bound.state() == spelled_out.state()


# Each way through it, once, so that the property cannot pass by never coming there


@pytest.fixture
def world(api: Api, without_refresher: None) -> World:
    """A lease of twenty tokens, one of them spent."""
    world = World(api, FixedBatch(20))
    assert world.try_acquire(1)
    assert world.reservoir.tokens.available == 19
    return world


def test_a_hit_spends_and_asks_nobody(world: World) -> None:
    assert world.try_acquire(19)
    assert world.reservoir.tokens.available == 0
    assert (len(world.stage.asks), world.limiter.statistics().admitted) == (1, 20)


@pytest.mark.parametrize("api", [RateLimiter])
def test_a_hit_leaves_what_is_set_aside_for_a_prefetch(world: World) -> None:
    world.reservoir.tokens.low_watermark = 5
    assert world.try_acquire(14)
    assert len(world.stage.asks) == 1
    assert world.try_acquire(1)
    assert world.reservoir.requests.wants_refill
    world.tend()
    assert len(world.stage.asks) == 2


@pytest.mark.parametrize("late", [0.0, 0.001, 1e6])
def test_a_lease_is_over_at_the_very_instant(world: World, late: float) -> None:
    world.clock.now = world.reservoir.tokens.expires + late
    assert world.try_acquire(1)
    assert len(world.stage.asks) == 2
    assert world.limiter.statistics().admitted == 2


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_lease_counts_from_before_the_ask_left(api: Api, without_refresher: None, where: str) -> None:
    """The store counts from later: so the instance always stops first, however slowly the answer travels."""
    world = World(api, FixedBatch(20))

    def travel() -> None:
        world.clock.now += 0.3

    setattr(world.stage, where, travel)
    sent = world.clock.now
    assert world.try_acquire(1)
    world.clock.now = sent + world.stage.grants[0].lease - 0.001
    assert world.try_acquire(1)
    assert len(world.stage.asks) == 1
    world.clock.now = sent + world.stage.grants[0].lease
    assert world.try_acquire(1)
    assert len(world.stage.asks) == 2


@pytest.mark.parametrize(("api", "cost"), [(RateLimiter, 1), (RateLimiter, 3), (Blocking, 1)])
def test_who_was_stopped_between_spending_and_the_look_at_the_clock_spends_nothing_of_it(
    world: World, cost: int
) -> None:
    """The clock is read after the tokens are taken; before, a stop at the wrong moment would spend a dead lease."""
    taken, tokens = [], world.reservoir.tokens
    if cost == 1:
        assert world.try_acquire(1)  # nothing is laid out before the first who takes

    class Stopped(Clock):
        def __call__(self) -> float:
            taken.append(tokens.available)
            world.clock.now += 2.0
            world.inner._clock = world.clock
            return world.clock.now

    world.inner._clock = Stopped()
    before = (tokens.available, world.limiter.statistics().admitted)
    assert world.try_acquire(cost)
    assert taken == [before[0] - cost]
    assert len(world.stage.asks) == 2
    assert world.limiter.statistics().admitted == before[1] + cost


def test_a_lease_that_is_over_admits_nobody_at_a_dry_bucket(world: World) -> None:
    world.steal(20)
    world.clock.now = world.reservoir.tokens.expires
    world.stage.inner = MemoryStore(world.clock)
    world.steal(40)
    assert not world.try_acquire(1)
    assert world.limiter.statistics().admitted == 1


@pytest.mark.parametrize("api", [RateLimiter])
def test_tokens_change_hands_only_under_the_lock(world: World) -> None:
    """CPython happens not to switch threads between those lines; nothing says that it never will.

    But for the steps of `lock_free`, of which nobody gets the same.
    """
    entry = world.inner._registry.entry(KEY)
    free, lock_free = FreeTokens.__dict__["free"], FreeTokens.__dict__["lock_free"]
    changes = []

    class Watched(FreeTokens):
        __slots__ = ()

        @property
        def free(self) -> int:
            found: int = free.__get__(self)
            return found

        @free.setter
        def free(self, tokens: int) -> None:
            changes.append(entry.lock._is_owned())
            free.__set__(self, tokens)

        @property
        def lock_free(self) -> "repeat[float]":
            found: repeat[float] = lock_free.__get__(self)
            return found

        @lock_free.setter
        def lock_free(self, tokens: "repeat[float]") -> None:
            changes.append(entry.lock._is_owned())
            lock_free.__set__(self, tokens)

    entry.tokens.__class__ = Watched
    assert world.try_acquire(1)
    assert world.try_acquire(2)
    world.clock.now += 1.0
    assert world.try_acquire(1)
    world.limiter.refund(KEY)
    world.limiter.acquire(KEY, 2)
    world.tend()
    world.limiter.close()
    assert len(changes) > 5
    assert all(changes)


def test_a_remembered_refusal_is_of_that_cost_or_more_and_asks_nobody(world: World) -> None:
    world.steal(18)
    assert world.try_acquire(19)
    assert world.often(3, 6) == [False] * 6
    assert not world.try_acquire(4)
    assert (len(world.stage.asks), world.limiter.statistics().refused) == (2, 6 * 3 + 4)
    assert world.try_acquire(2)


def test_a_remembered_refusal_ends(world: World) -> None:
    world.steal(20)
    assert world.try_acquire(19)
    retry_after = world.limiter.decide(KEY, 3).retry_after
    world.clock.now += retry_after * 0.999
    assert not world.try_acquire(3)
    world.clock.now += retry_after * 0.002
    assert world.try_acquire(3)


def test_a_failure_leaves_what_is_here_to_others(world: World) -> None:
    world.reachable = False
    assert not world.try_acquire(20)
    assert world.try_acquire(19)
    world.stage.before = nothing
    assert world.try_acquire(20)


WITHOUT_GIL = """
import sys
sys._is_gil_enabled = lambda: False  # as a free-threaded Python says: no token is laid out
from batchlimit import RateLimiter
from batchlimit.batching import FixedBatch

called = []
limiter = RateLimiter.from_url("memory://", "1/hour burst 1000", sizer=FixedBatch(100), clock=lambda: 0.0)
limiter.try_acquire("ann")
sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
admitted = [limiter.try_acquire("ann") for _ in range(9)]
sys.setprofile(None)
print(all(admitted), sorted({*called} - {'<listcomp>'}))
"""


def test_without_the_gil_a_hit_of_cost_1_takes_the_lock_and_no_way_of_its_own() -> None:
    """It went nine calls deep, past the flattened branch that larger costs take."""
    told = subprocess.run([sys.executable, "-c", WITHOUT_GIL], check=True, capture_output=True, text=True).stdout
    assert told == "True ['<lambda>', 'try_acquire']\n"
