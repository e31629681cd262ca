"""The background thread asks together for all keys that are due at once, if its store can."""

import math
import threading
from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace

import pytest

from batchlimit import Quota, RateLimiter, StoreUnavailable
from batchlimit.batching import FixedBatch
from batchlimit.bucket.messages import Ask, Grant
from batchlimit.keyspace.timer_heap import TimerHeap
from batchlimit.quota.overrides.code import Rank
from batchlimit.quota.overrides.override import KeyRule
from batchlimit.reservoir.options import Instance, Options
from batchlimit.reservoir.requests import Requests
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.stores import MemoryStore
from batchlimit.sync.guarded_store import GuardedStore
from batchlimit.sync.key_entry import KeyEntry
from batchlimit.sync.refresher import Refresher
from tests.reservoir.world import NoRules
from tests.sync.stage import KEY, Clock, Piped, Stage, nothing, until

TEN = Quota(100.0, 1000)
KEYS = [f"k{i}" for i in range(40)]


@pytest.fixture
def stage() -> Piped:
    return Piped()


@pytest.fixture
def limiter(stage: Piped, clock: Clock) -> Iterator[RateLimiter]:
    """A limiter with tokens of all keys, of which some are spent, so that all leases are renewed at the same time."""
    with RateLimiter(stage, TEN, sizer=FixedBatch(10), clock=clock) as limiter:
        for key in KEYS:
            assert limiter.try_acquire(key)
        yield limiter


def leases_end(limiter: RateLimiter, clock: Clock) -> None:
    """Let it be nearly the end of all leases, and tell the background thread."""
    clock.pass_by(min(entry.reservoir.lifecycle.due() for entry in limiter._registry.entries.values()) - clock.now)
    limiter._registry._refresher._bell.put(None)


def test_what_is_due_at_once_is_asked_together(stage: Piped, limiter: RateLimiter, clock: Clock) -> None:
    asked = len(stage.asks)
    leases_end(limiter, clock)
    until(lambda: len(stage.asks) == asked + len(KEYS))
    assert stage.together == [32, 8]
    until(lambda: all(entry.due > clock.now for entry in limiter._registry.entries.values()))
    assert limiter.statistics().calls == len(stage.asks)
    clock.pass_by(0.1)  # the leases of before are over
    assert all(limiter.try_acquire(key) for key in KEYS)
    assert limiter.statistics().calls == len(stage.asks) == asked + len(KEYS)


def test_a_key_that_is_broken_fails_alone(stage: Piped, limiter: RateLimiter, clock: Clock) -> None:
    stage.broken = "k7"
    asked = len(stage.asks)
    leases_end(limiter, clock)
    until(lambda: len(stage.asks) == asked + len(KEYS) - 1)
    until(lambda: limiter.statistics().calls == asked + len(KEYS))
    assert limiter.statistics().failures == 0


def test_what_befalls_all_is_one_failure(
    stage: Piped, limiter: RateLimiter, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    def cut() -> None:
        if len(stage.together) == 1:
            raise StoreUnavailable("cut")

    stage.before_many = cut
    asked = len(stage.asks)
    leases_end(limiter, clock)
    until(lambda: len(stage.asks) == asked + 8)
    assert limiter.statistics().failures == 1
    assert limiter.statistics().available
    assert not caplog.records
    clock.pass_by(0.2)
    assert all(limiter.try_acquire(key) for key in KEYS)


def test_a_store_that_breaks_its_promise_stops_nobody(stage: Piped, limiter: RateLimiter, clock: Clock) -> None:
    def lie() -> None:
        raise LookupError

    stage.before_many = lie
    leases_end(limiter, clock)
    until(lambda: len(stage.together) == 2)
    stage.before_many = nothing
    assert limiter.try_acquire("another")
    clock.pass_by(1.0)
    assert all(limiter.try_acquire(key) for key in KEYS)


def test_a_store_that_cannot_is_asked_for_one_after_the_other(clock: Clock) -> None:
    stage = Stage()
    with RateLimiter(stage, TEN, sizer=FixedBatch(10), clock=clock) as limiter:
        for key in KEYS:
            assert limiter.try_acquire(key)
        asked = len(stage.asks)
        leases_end(limiter, clock)
        until(lambda: len(stage.asks) == asked + len(KEYS))


def test_what_comes_in_as_the_keeper_goes_to_sleep_keeps_it_awake(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has looked through its inbox, and not noted yet until when it sleeps: so nobody rings."""
    refresher = Refresher(clock, GuardedStore(Piped(), 1.0), lambda entry: None, lambda: math.inf, nothing)
    refresher._thread = threading.current_thread()  # so that none is started
    instance, rank = Instance("a", iter(()), NoRules()), Rank(0, clock.now)
    reservoir = Reservoir(KeyRule(TEN), instance, Options(), clock.now, rank=rank)
    entry = KeyEntry(KEY, reservoir, refresher._store, clock, refresher.watch, refresher.finish)
    entry.due = clock.now + 1.0
    slept: list[float] = []

    def sleep(timeout: float) -> None:
        slept.append(timeout)

    def come_in(_: object) -> float:
        refresher.watch(entry)
        return math.inf

    monkeypatch.setattr(refresher, "_bell", SimpleNamespace(get=sleep))
    refresher._sleep(clock.now - 0.5)  # what was due half a second ago is late enough
    monkeypatch.setattr(TimerHeap, "first_at", property(come_in))
    refresher._sleep(math.inf)
    assert slept == []


def test_many_asks_may_be_one_alone() -> None:
    (grant,) = GuardedStore(Piped(), 30.0).take_many([(KEY, TEN, Ask("a", 1, need=1, queued=1, want=1))])
    assert isinstance(grant, Grant)


def test_in_steady_demand_no_caller_has_to_wake_the_keeper(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 1000 calls a second: it looks by itself before anybody reaches the low mark."""
    surprised, take_low = [], Requests.take_low

    def noting(self: Requests, cost: int) -> float:
        surprised.append(clock.now)
        return take_low(self, cost)

    monkeypatch.setattr(Requests, "take_low", noting)
    stage = Stage(MemoryStore(clock))
    stage.before = lambda: clock.pass_by(0.001)
    with RateLimiter(stage, "5000/s burst 5000", sizer=FixedBatch(500), clock=clock) as limiter:
        begun = clock.now
        assert limiter.try_acquire(KEY)
        entry = limiter._registry.entries[KEY]
        for _ in range(3000):
            assert limiter.try_acquire(KEY)
            clock.pass_by(0.001)
            if entry.due <= clock.now:
                limiter._registry._refresher._bell.put(None)
                until(lambda: clock.now < entry.due < math.inf)
        assert all(at < begun + 1.0 for at in surprised), "but of the first batch, when nothing is known"
        assert len(stage.asks) <= 8


def test_a_plan_that_nobody_told_of_is_made_anew(
    clock: Clock, without_refresher: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt between the noting of a plan and the telling: the key was never looked after again."""
    with RateLimiter(Piped(), TEN, sizer=FixedBatch(10), clock=clock) as limiter:
        told: list[str] = []
        monkeypatch.setattr(limiter._registry._refresher, "watch", lambda entry: told.append(entry.key))
        assert limiter.try_acquire(KEY)
        entry = limiter._registry.entries[KEY]
        entry.watch = lambda entry: told.append(entry.key)
        told.clear()
        entry.due = -math.inf  # as it was noted, and nobody told
        entry.locked(lambda: None)
        assert told == [KEY]
        entry.locked(lambda: None)
        assert told == [KEY]


def test_the_refund_of_a_caller_who_is_interrupted_twice_is_ended_by_the_background_thread(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    handed: list[Callable[[], object]] = []
    instance, rank = Instance("a", count(1), NoRules()), Rank(0, clock.now)
    reservoir = Reservoir(KeyRule(TEN), instance, Options(), clock.now, rank=rank)
    entry = KeyEntry(KEY, reservoir, GuardedStore(Stage(), 1.0), clock, lambda entry: None, handed.append)
    with monkeypatch.context() as interrupts:
        interrupts.setattr(KeyEntry, "give_back", interrupt)
        interrupts.setattr(Reservoir, "leave", interrupt)
        with pytest.raises(KeyboardInterrupt):
            entry.refund(4)
    assert reservoir.state.in_flight is not None
    for end in handed:
        end()
    assert reservoir.state.in_flight is None
