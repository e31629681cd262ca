"""Threads that spend for keys that are not in use go together: one call at a time, and nobody waits for ever."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from batchlimit import FailurePolicy, LimiterClosed, Quota, RateLimiter, StoreUnavailable
from batchlimit.base.blocking import not_reentered
from batchlimit.batching import FixedBatch
from batchlimit.bucket.messages import Ask, Grant, Groups, SpendReply
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.quota import Quota as AnyQuota
from batchlimit.stores import MemoryStore
from batchlimit.sync import spends as spends_of_threads
from batchlimit.sync.spends import Spends, _Place
from tests.servers import Server
from tests.sync.stage import DEADLINE, KEY, Clock, Gate, away, nothing, said, start, until

TEN = Quota(0.001, 10)
pytestmark = pytest.mark.usefixtures("without_refresher")


class Till(MemoryStore):
    """Notes which groups come in which call; `before` runs on the way to the store, and `after` on the way back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self.calls: list[list[list[str]]] = []
        self.asks: list[str] = []
        self.looks: list[bool] = []
        self.before: Callable[[], None] = nothing
        self.after: Callable[[], None] = nothing

    def spend(self, groups: Groups, *, look: bool = False, within: float = math.inf) -> SpendReply:
        self.calls.append([[each.key for each in group] for group in groups])
        self.looks.append(look)
        self.before()
        reply = super().spend(groups, look=look, within=within)
        self.after()
        return reply

    def take(self, key: str, quota: AnyQuota, ask: Ask) -> Grant:
        self.asks.append(key)
        return super().take(key, quota, ask)


@pytest.fixture
def till(clock: Clock) -> Till:
    return Till(clock)


@pytest.fixture
def limiter(till: Till, clock: Clock) -> Iterator[RateLimiter]:
    with RateLimiter(till, TEN, sizer=FixedBatch(1), clock=clock) as limiter:
        yield limiter


def queue_of(limiter: RateLimiter) -> Spends:
    return limiter._registry.spends


def led(
    limiter: RateLimiter, till: Till, calls: Mapping[str, Callable[[], Any]]
) -> tuple[Gate, Future[Any], list[Any]]:
    """Have one call be under way, held up by a gate, while these come one after the other."""
    gate = till.before = Gate()
    first = start(lambda: limiter.try_acquire("first"))
    gate.await_someone()
    rest = []
    for number, call in enumerate(calls.values(), start=1):
        rest.append(start(call))
        until(lambda number=number: len(queue_of(limiter)._waiting) == number)  # type: ignore[misc]
    till.before = nothing
    return gate, first, rest


def each_of(limiter: RateLimiter, keys: str) -> dict[str, Callable[[], bool]]:
    return {key: lambda key=key: limiter.try_acquire(key) for key in keys}  # type: ignore[misc]


def test_a_thread_alone_asks_at_once_and_leaves_nothing_but_a_snapshot(limiter: RateLimiter, till: Till) -> None:
    assert [limiter.try_acquire(f"key-{n}") for n in range(5)] == [True] * 5
    assert till.calls == [[[f"key-{n}"]] for n in range(5)]
    assert limiter._entries == {}
    seen = limiter.statistics()
    assert (seen.keys, seen.admitted, seen.calls, seen.held, seen.waiting) == (5, 5, 5, 0, 0)
    assert till.asks == []


def test_who_come_while_one_asks_go_in_one_call(limiter: RateLimiter, till: Till) -> None:
    gate, first, rest = led(limiter, till, each_of(limiter, "abcde"))
    assert limiter.statistics().waiting == 6
    gate.open()
    assert all(each.result(DEADLINE) for each in [first, *rest])
    assert till.calls == [[["first"]], [["a"], ["b"], ["c"], ["d"], ["e"]]]
    assert limiter.statistics().admitted == 6


def test_a_thread_that_wakes_late_gives_back_what_was_charged_and_asks_again(
    limiter: RateLimiter, till: Till, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer was taken in by the leader, in time; but more has flowed into the bucket since."""
    sleep, before = _Place.sleep, list[Future[Any]]()

    def long(place: _Place, seconds: float) -> None:
        sleep(place, seconds)
        if place.is_told:
            for each in before:
                each.result(DEADLINE)
            clock.pass_by(1000.0)

    monkeypatch.setattr(_Place, "sleep", long)
    gate, first, (leader, late) = led(limiter, till, each_of(limiter, "ab"))
    before += [first, leader]
    gate.open()
    assert late.result(DEADLINE)
    assert till.calls == [[["first"]], [["a"], ["b"]]]
    assert list(limiter._entries) == ["b"]
    seen = limiter.statistics()
    assert (seen.admitted, seen.calls) == (3, 5)  # of these the last two give back, and ask again


def test_calls_of_a_closed_limiter_or_without_a_quota_leave_nothing_behind(till: Till, clock: Clock) -> None:
    with RateLimiter(till, {"a": TEN}, sizer=FixedBatch(1), clock=clock) as limiter:
        bell = limiter._registry._refresher._bell
        with pytest.raises(ValueError, match="no quota"):
            limiter.try_acquire("b")
        assert bell.empty()
    before = bell.qsize()
    with pytest.raises(LimiterClosed):
        limiter.try_acquire("a")
    assert bell.qsize() == before


def test_the_keys_of_one_call_are_one_group(limiter: RateLimiter, till: Till) -> None:
    costs = {"x": 1, "y": 2, "z": 3}
    gate, _, (a, several) = led(limiter, till, each_of(limiter, "a") | {"several": lambda: limiter.decide_all(costs)})
    gate.open()
    assert a.result(DEADLINE)
    assert {key: told.remaining for key, told in several.result(DEADLINE).items()} == {"x": 9, "y": 8, "z": 7}
    assert till.calls[1:] == [[["a"], ["x", "y", "z"]]]


def test_callers_of_one_key_are_charged_one_after_the_other(limiter: RateLimiter, till: Till) -> None:
    calls = {str(n): lambda: limiter.decide(KEY, 4) for n in range(3)}
    gate, _, rest = led(limiter, till, calls)
    gate.open()
    told = [each.result(DEADLINE) for each in rest]
    assert sorted((each.allowed, each.remaining) for each in told) == [(False, 2), (True, 2), (True, 6)]
    assert len(till.calls) == 2
    assert limiter.statistics().waiting == 0


def test_threads_whose_spends_were_in_vain_wait_ahead_of_those_who_came_later(limiter: RateLimiter, till: Till) -> None:
    """The key comes into use while they ask: the first of them, or one who came later, brings it."""
    assert limiter.try_acquire(KEY, 10)
    calls = {str(cost): partial(limiter.acquire, KEY, cost) for cost in (1, 2, 3)}
    gate, _, rest = led(limiter, till, calls)
    limiter._registry.live_entry(KEY)
    rest += [start(partial(limiter.acquire, KEY, cost)) for cost in (4,)]
    queue = limiter._entries[KEY].reservoir.state.queue
    until(lambda: [each.cost for each in queue] == [4])
    gate.open()
    until(lambda: [each.cost for each in queue] == [1, 2, 3, 4])
    limiter.close()
    assert all(isinstance(each.exception(DEADLINE), LimiterClosed) for each in rest)


def test_the_first_ask_of_a_key_waits_for_the_spends_of_who_came_before(till: Till, clock: Clock) -> None:
    with RateLimiter(till, Quota(1000.0, 1000), clock=clock) as limiter:
        one = partial(limiter.try_acquire, KEY)
        gate, first, rest = led(limiter, till, {"spends": one, "spends too": one, "leases": one})
        assert (till.calls, till.asks) == ([[["first"]]], [])
        gate.open()
        assert [each.result(DEADLINE) for each in (first, *rest)] == [True] * 4
        assert (till.calls[1:], till.asks) == ([[[KEY], [KEY]]], [KEY])
        assert limiter.statistics().waiting == 0


def test_no_call_has_more_buckets_than_others_can_wait_for(
    limiter: RateLimiter, till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spends_of_threads, "_MOST", 4)
    several = {"x": 1, "y": 1, "z": 1}
    calls = each_of(limiter, "ab") | {"several": lambda: limiter.decide_all(several)} | each_of(limiter, "cd")
    gate, _, rest = led(limiter, till, calls)
    gate.open()
    assert all(each.result(DEADLINE) for each in rest)
    assert till.calls[1:] == [[["a"], ["b"]], [["x", "y", "z"], ["c"]], [["d"]]]


def test_a_call_of_more_buckets_than_that_goes_alone(
    limiter: RateLimiter, till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spends_of_threads, "_MOST", 2)
    assert all(limiter.decide_all({"x": 1, "y": 1, "z": 1}).values())
    assert till.calls == [[["x", "y", "z"]]]


def test_an_error_of_the_store_reaches_each_caller_by_its_own_policy(till: Till, clock: Clock) -> None:
    policies: Any = {"open": "open", "local": FailurePolicy.local(instances=5), "*": "closed"}
    with RateLimiter(till, TEN, sizer=FixedBatch(1), clock=clock, on_failure=policies) as limiter:
        calls = {key: partial(limiter.decide, key) for key in ("open", "local", "closed")}
        gate, _, rest = led(limiter, till, calls)
        till.before = away
        gate.open()
        is_open, local, closed = rest
        assert is_open.result(DEADLINE).source == local.result(DEADLINE).source == "fallback"
        assert (is_open.result(DEADLINE).allowed, local.result(DEADLINE).allowed) == (True, True)
        with pytest.raises(StoreUnavailable, match="away") as caught:
            closed.result(DEADLINE)
        assert caught.value.key == "closed"
        till.before = nothing
        assert limiter.try_acquire("next")
        assert limiter.statistics().waiting == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError], ids=["interrupted", "a mistake"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_leader_that_is_interrupted_hands_on_the_lead(
    limiter: RateLimiter, till: Till, error: type[BaseException], when: str
) -> None:
    """Those whom it led come again: whether they were charged nobody knows, and tokens are lost at the most."""

    def fail() -> None:
        if len(till.calls[-1]) == 3:
            raise error

    gate, _, rest = led(limiter, till, each_of(limiter, "abc"))
    setattr(till, when, fail)
    gate.open()
    with pytest.raises(error):
        rest[0].result(DEADLINE)
    assert all(each.result(DEADLINE) for each in rest[1:])
    assert till.calls[1] == [["a"], ["b"], ["c"]]
    assert sorted(group for call in till.calls[2:] for group in call) == [["b"], ["c"]]
    assert limiter.statistics().waiting == 0
    assert limiter.try_acquire("d")
    assert limiter.statistics().admitted == 4


def test_a_thread_that_is_interrupted_while_it_waits_leaves_the_queue(limiter: RateLimiter, till: Till) -> None:
    """A KeyboardInterrupt falls into the wait of the main thread, which is this one."""
    gate, first, _ = led(limiter, till, {})
    queue, me = queue_of(limiter), threading.get_ident()

    def interrupt() -> None:
        until(lambda: len(queue._waiting) == 1)
        signal.pthread_kill(me, signal.SIGUSR1)

    def raising(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, raising)
    try:
        start(interrupt)
        with pytest.raises(KeyboardInterrupt):
            limiter.try_acquire(KEY)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(queue._waiting) == 0
    gate.open()
    assert first.result(DEADLINE)
    assert limiter.try_acquire(KEY)
    assert till.calls == [[["first"]], [[KEY]]]
    assert limiter.statistics().waiting == 0


def test_a_handler_amid_a_call_that_its_own_thread_leads_is_served(limiter: RateLimiter, till: Till) -> None:
    """It asks for itself: who leads is the thread that it has interrupted."""
    seen: list[bool] = []

    def handle() -> None:
        till.before = nothing
        seen.append(limiter.try_acquire("another"))

    till.before = handle
    assert start(lambda: limiter.try_acquire(KEY)).result(DEADLINE)
    assert seen == [True]
    assert till.calls == [[[KEY]], [["another"]]]
    assert limiter.try_acquire("a third")
    assert limiter.statistics().waiting == 0


def test_a_handler_amid_the_wait_of_its_thread_is_served(limiter: RateLimiter, till: Till) -> None:
    """The lead may fall to the call that it has interrupted, which cannot take it."""
    gate, first, _ = led(limiter, till, {})
    queue, me, seen = queue_of(limiter), threading.get_ident(), list[bool]()

    def handle(_number: int, _frame: object) -> None:
        seen.append(limiter.try_acquire("another"))

    def interrupt() -> None:
        until(lambda: len(queue._waiting) == 1)
        signal.pthread_kill(me, signal.SIGUSR1)
        until(lambda: bool(seen))
        gate.open()

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        start(interrupt)
        assert limiter.try_acquire(KEY)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [True]
    assert first.result(DEADLINE)


def test_a_leader_that_stops_for_long_is_replaced(limiter: RateLimiter, till: Till) -> None:
    """Its callers ask again after the longest time that a call may take; its answer, when it comes, is for itself."""
    queue_of(limiter)._patience = 0.001
    gate, first, _ = led(limiter, till, {})
    assert limiter.try_acquire("second")
    gate.open()
    assert first.result(DEADLINE)
    queue = queue_of(limiter)
    assert queue._leader is None
    assert not queue._waiting
    assert limiter.try_acquire("third")


def test_one_that_woke_too_early_and_is_answered_leaves_the_queue(limiter: RateLimiter, till: Till) -> None:
    """Else the lead would fall to a thread that is gone, and whoever comes would wait for nothing."""
    gate, first, rest = led(limiter, till, each_of(limiter, "ab"))
    second, queue = Gate(), queue_of(limiter)
    till.before = second
    gate.open()
    second.await_someone()
    assert queue._leader is not None
    queue._leader.others[0].wake()
    until(lambda: len(queue._waiting) == 1)
    second.open()
    assert all(each.result(DEADLINE) for each in (first, *rest))
    assert queue._leader is None
    assert not queue._waiting
    assert len(till.calls) == 2


def test_one_that_is_answered_just_as_it_is_to_lead_hands_on_the_lead(
    limiter: RateLimiter, till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the lead is nobody's, until it would have taken too long."""
    gate, first, rest = led(limiter, till, each_of(limiter, "ab"))
    second, third, awake, queue, sleep = Gate(), Gate(), Gate(), queue_of(limiter), _Place.sleep
    till.before = second
    gate.open()
    second.await_someone()
    assert queue._leader is not None
    (answered,) = queue._leader.others

    def long(place: _Place, seconds: float) -> None:
        sleep(place, seconds)
        if place is answered:
            awake()

    monkeypatch.setattr(_Place, "sleep", long)
    queue._leads_until, till.before = 0.0, third  # who leads has taken too long
    rest.append(start(lambda: limiter.try_acquire("c")))
    third.await_someone()
    till.before = nothing
    answered.wake()
    until(lambda: len(queue._waiting) == 1)
    last = start(lambda: limiter.try_acquire("d"))
    until(lambda: len(queue._waiting) == 2)
    third.open()
    awake.await_someone()
    second.open()
    assert last.result(DEADLINE)
    awake.open()
    assert all(each.result(DEADLINE) for each in (first, *rest))
    assert queue._leader is None
    assert till.calls[1:] == [[["a"], ["b"]], [["c"]], [["d"]]]


def test_one_that_is_answered_before_it_can_lead_does_not_ask_again(
    limiter: RateLimiter, till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be charged twice."""
    sleep, locked, whom, awake = _Place.sleep, not_reentered, list[_Place](), set[int]()
    second, hold, queue = Gate(), Gate(), queue_of(limiter)

    def noted(place: _Place, seconds: float) -> None:
        sleep(place, seconds)
        if place in whom:
            awake.add(threading.get_ident())

    def held(lock: Any) -> Any:
        if threading.get_ident() in awake:
            hold()
        return locked(lock)

    monkeypatch.setattr(_Place, "sleep", noted)
    monkeypatch.setattr(spends_of_threads, "not_reentered", held)
    gate, first, rest = led(limiter, till, each_of(limiter, "ab"))
    till.before = second
    gate.open()
    second.await_someone()
    assert queue._leader is not None
    whom += queue._leader.others
    whom[0].wake()
    hold.await_someone()
    second.open()
    assert rest[0].result(DEADLINE)
    hold.open()
    assert all(each.result(DEADLINE) for each in (first, *rest))
    assert till.calls == [[["first"]], [["a"], ["b"]]]


def test_impatient_threads_all_have_their_answer_and_leave_an_empty_queue(
    till: Till, clock: Clock, restless: None
) -> None:
    """They wake in any order, and lead although they were answered; nobody is left in the queue."""
    till.after = lambda: time.sleep(0.0001)
    with RateLimiter(till, Quota(0.001, 10**6), sizer=FixedBatch(1), clock=clock) as limiter:
        queue = queue_of(limiter)
        queue._patience = 0.0002

        def work(name: int) -> int:
            return sum(limiter.try_acquire(f"{name}-{n}") for n in range(50))

        jobs = [start(lambda name=name: work(name)) for name in range(8)]  # type: ignore[misc]
        assert [each.result(DEADLINE) for each in jobs] == [50] * 8
        assert queue._leader is None
        assert not queue._waiting
        assert limiter.statistics().admitted == 400


def test_a_limiter_that_is_closed_meanwhile_fails_all_its_callers(till: Till, clock: Clock) -> None:
    limiter = RateLimiter(till, TEN, sizer=FixedBatch(1), clock=clock)
    gate, first, rest = led(limiter, till, each_of(limiter, "ab"))
    start(limiter.close).result(DEADLINE)
    gate.open()
    for each in (first, *rest):
        with pytest.raises(LimiterClosed):
            each.result(DEADLINE)
    with pytest.raises(LimiterClosed):
        limiter.try_acquire(KEY)


def test_a_quota_function_may_ask_the_limiter(till: Till, clock: Clock) -> None:
    """It is the user's own, and is called without our lock, as for any other call."""

    def quota(key: str) -> Quota:
        return TEN if key == "plan" else Quota(0.001, asked.peek("plan").limit)

    asked = RateLimiter(till, quota, sizer=FixedBatch(1), clock=clock)
    assert start(lambda: asked.decide(KEY)).result(DEADLINE).limit == 10
    asked.close()


def test_buckets_that_cannot_be_served_together_are_asked_one_by_one(limiter: RateLimiter, till: Till) -> None:
    """A cluster of one node, asked as a server, has all keys and refuses those of two slots in one script."""

    def refuse() -> None:
        if len(till.calls[-1]) > 1 or len(till.calls[-1][0]) > 1:
            raise BucketUnavailable("CROSSSLOT Keys in request don't hash to the same slot", code="CROSSSLOT")

    gate, _, rest = led(limiter, till, each_of(limiter, "abc"))
    till.before = refuse
    gate.open()
    assert all(each.result(DEADLINE) for each in rest)
    assert sorted(till.asks) == ["a", "b", "c"]
    assert all(limiter.decide_all({"x": 1, "y": 1}).values())
    assert limiter.statistics().failures == 0


def test_an_own_store_may_spend_one_key_at_a_time(till: Till, clock: Clock) -> None:
    till.spends_together = False
    with RateLimiter(till, TEN, sizer=FixedBatch(1), clock=clock) as limiter:
        assert limiter.try_acquire("a")
        assert all(limiter.decide_all({"b": 1, "c": 1}).values())
        assert till.calls == [[["a"]]]
        assert sorted(till.asks) == ["b", "c"]


def test_a_child_that_was_forked_while_a_thread_leads_asks_for_itself(valkey: Server, prefix: str) -> None:
    program = """
    limiter = limiter_of("0.001/s burst 10", sizer=FixedBatch(1))
    held, go = threading.Event(), threading.Event()
    store, spend = limiter._registry.store._store, RedisStore.spend

    def slow(self, groups, **options):
        held.set()
        go.wait()
        return spend(self, groups, **options)

    RedisStore.spend = slow
    leader = threading.Thread(target=limiter.try_acquire, args=("first",))
    leader.start()
    held.wait()
    waiter = threading.Thread(target=limiter.try_acquire, args=("second",))
    waiter.start()

    def job():
        RedisStore.spend = spend
        return [limiter.decide(key).remaining for key in ("first", "second", KEY)], limiter.statistics().waiting

    fork(job)
    go.set()
    leader.join()
    waiter.join()
    say(limiter.decide("first").remaining)
    limiter.close()
    """
    assert said(program, valkey.url, prefix) == ["([9, 9, 9], 0)", "7"]
