"""A store that is slow, for threads: nobody waits longer than the budget, and nothing is spent twice."""

import threading
from collections.abc import Iterator

import pytest

from batchlimit import Quota, RateLimiter, StoreUnavailable
from batchlimit.batching import FixedBatch
from batchlimit.stores import MemoryStore
from batchlimit.stores.client.deadline import NeedsConnection, current_deadline
from batchlimit.sync.guarded_store import GuardedStore
from tests.sync.stage import DEADLINE, KEY, Clock, Gate, Stage, away, nothing, start, until

HUNDRED = Quota(0.001, 100)
SHORT = 0.02
"""A budget that a test waits for."""


class Slow(Stage):
    """Somebody's own store, of which nothing is known."""

    is_prompt = False


@pytest.fixture
def stage(clock: Clock) -> Slow:
    return Slow(MemoryStore(clock))


@pytest.fixture
def limiter(stage: Slow, clock: Clock, without_breaker: None) -> Iterator[RateLimiter]:
    """A limiter that its store has answered once. Time stands still, but for its budget."""
    with RateLimiter(stage, HUNDRED, sizer=FixedBatch(1), deadline=30.0, clock=clock) as limiter:
        limiter.acquire("another")
        yield limiter


def give(limiter: RateLimiter, seconds: float) -> None:
    """Let the store have so much time from now on."""
    limiter._registry.store.deadline = limiter._registry.store._connecting = seconds


def try_in_vain(limiter: RateLimiter, gate: Gate, cost: int) -> None:
    """Leave an ask that is held up at the gate, and that the store has had: what nobody began in time is no ask."""
    give(limiter, SHORT)
    while not gate.reached:
        assert not limiter.try_acquire(KEY, cost)
    give(limiter, DEADLINE)


def test_who_asks_a_store_that_hangs_leaves_in_time(stage: Slow, limiter: RateLimiter) -> None:
    gate = stage.before = Gate()
    give(limiter, SHORT)
    with pytest.raises(StoreUnavailable, match=r"stage:// did not answer in time") as caught:
        limiter.decide(KEY)
    assert caught.value.code == "TIMEOUT"
    gate.open()


def test_who_expects_tls_is_told_that_the_server_may_have_none_until_it_has_answered() -> None:
    store = Slow()
    store.address = "rediss://h:1/0"
    guarded = GuardedStore(store, SHORT)
    told = [str(guarded.late(SHORT))]
    guarded.peek(KEY, HUNDRED)
    told.append(str(guarded.late(SHORT)))
    assert ["TLS" in each for each in told] == [True, False]


def test_all_in_line_leave_with_the_one_that_asked(stage: Slow, limiter: RateLimiter) -> None:
    gate = stage.before = Gate()
    line = [start(lambda: limiter.try_acquire(KEY)) for _ in range(8)]
    until(lambda: limiter.statistics().waiting == 8)
    limiter._registry.store._failed("", KEY, StoreUnavailable("away"))
    gate.open()
    assert all(each.result(DEADLINE) for each in line)
    assert limiter.statistics().failures == 1


def test_an_answer_that_comes_too_late_is_charged_once(stage: Slow, limiter: RateLimiter) -> None:
    gate = stage.after = Gate()
    try_in_vain(limiter, gate, 40)
    gate.open()
    stage.after = nothing
    assert limiter.try_acquire(KEY, 40)
    assert stage.asks[-1].seq == stage.asks[-2].seq
    assert stage.peek(KEY, HUNDRED).level == 60


def test_an_ask_that_arrives_too_late_is_charged_once(stage: Slow, limiter: RateLimiter) -> None:
    """It was overtaken by its own repetition."""
    gate = stage.before = Gate()
    try_in_vain(limiter, gate, 40)
    stage.before = nothing
    assert limiter.try_acquire(KEY, 40)
    gate.open()
    until(lambda: len(stage.grants) == 3)
    assert stage.peek(KEY, HUNDRED).level == 60
    assert limiter.try_acquire(KEY, 60)
    assert not limiter.try_acquire(KEY)


def test_a_store_that_hangs_holds_up_no_close(stage: Slow, limiter: RateLimiter) -> None:
    gate = stage.before_back = Gate()
    limiter.acquire(KEY)
    give(limiter, SHORT)
    limiter.close()
    gate.open()


@pytest.mark.parametrize(("connect_timeout", "before", "after"), [(400.0, 400.0, 150.0), (40.0, 40.0, 40.0)])
def test_to_connect_may_take_longer(connect_timeout: float, before: float, after: float) -> None:
    """At first as long as it may; later a few deadlines: who connects to nowhere is not to wait for ever."""
    guard = GuardedStore(Slow(MemoryStore()), 30.0)
    guard.allow(connect_timeout)
    breaker = guard._outages.breakers[""]
    assert guard._to_connect(breaker) == before
    guard._failed("", KEY, StoreUnavailable("away", code="REFUSED"))
    assert guard._to_connect(breaker) == before, "the server may have begun just now, and be far away"
    guard._failed("", KEY, StoreUnavailable("away", code="TIMEOUT"))
    assert guard._to_connect(breaker) == after, "a call that waited in vain has told enough"
    guard.peek(KEY, HUNDRED)
    assert (guard._to_connect(breaker), breaker.consecutive_failures) == (after, 0)
    guard.stop()


class Prompt(Stage):
    """A store that keeps to a deadline, and says which thread asked."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.told: list[tuple[bool, bool]] = []
        self.connected = False
        self.before = self._look

    def _look(self) -> None:
        self.told.append((threading.current_thread() is threading.main_thread(), current_deadline() is not None))
        if not self.connected and current_deadline() is not None:
            raise NeedsConnection
        self.connected = True


def test_a_prompt_store_is_asked_in_place_unless_it_has_to_connect() -> None:
    stage = Prompt()
    with RateLimiter(stage, HUNDRED, sizer=FixedBatch(1)) as limiter:
        assert limiter.try_acquire(KEY)
        assert stage.told == [(True, True), (False, False)]
        assert limiter.try_acquire(KEY)
        assert stage.told[2:] == [(True, True)]
        assert limiter.statistics().failures == 0


def test_probes_go_one_at_a_time_and_ever_rarer(stage: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    class Stopped(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            waits.append(timeout)
            return super().wait(0.0)

    def probe() -> None:
        if stage.probes < 12:
            raise StoreUnavailable("still away")

    monkeypatch.setattr(threading, "Event", Stopped)
    guard = GuardedStore(stage, DEADLINE)
    monkeypatch.undo()
    stage.before_probe = probe
    for _ in range(3):
        guard._failed("", KEY, StoreUnavailable("away"))
    until(lambda: guard.health.available)
    assert stage.probes == 12
    assert len(waits) == 12
    assert 0.05 <= waits[0] <= 0.15
    for least, wait in zip([0.1, 0.2, 0.4, 0.8, *[1.0] * 7], waits[1:], strict=True):
        assert least <= wait <= least + 0.1
    guard.stop()


def test_who_closes_ends_the_prober(stage: Slow) -> None:
    stage.before = stage.before_probe = away
    limiter = RateLimiter(stage, HUNDRED)
    for _ in range(3):
        assert not limiter.try_acquire(KEY)
    probe = limiter._registry.store._outages._probes[""]
    assert probe.is_alive()
    limiter.close()
    until(lambda: not probe.is_alive())
    until(lambda: limiter._registry.store._pool._threads == 0)


@pytest.mark.parametrize("answers", [True, False])
def test_a_breaker_that_an_ask_closed_needs_its_prober_no_more(stage: Slow, answers: bool) -> None:
    """And the next outage has one of its own, of which the first one's last probe says nothing."""
    guard = GuardedStore(stage, DEADLINE)
    first, second = Gate(), Gate()

    def probe() -> None:
        first()
        if not answers:
            raise StoreUnavailable("away")

    stage.before_probe = probe
    for _ in range(3):
        guard._failed("", KEY, StoreUnavailable("away"))
    first.await_someone()
    planned = guard._outages._probes[""]
    assert planned.is_alive()
    guard._answered("")
    assert guard.health.available
    stage.before_probe = second
    for _ in range(3):
        guard._failed("", KEY, StoreUnavailable("away again"))
    second.await_someone()
    first.open()
    until(lambda: not planned.is_alive())
    assert stage.probes == 2
    assert not guard.health.available
    second.open()
    until(lambda: guard.health.available)
    guard.stop()
