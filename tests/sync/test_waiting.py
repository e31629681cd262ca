"""Waiting for tokens: in order of arrival, until a deadline, and never for ever, whatever happens to the others."""

import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial

import pytest

from batchlimit import Quota, RateLimited, RateLimiter, StoreUnavailable
from batchlimit.base.waiting import NO_WAIT
from batchlimit.base.waking import Event
from batchlimit.batching import FixedBatch
from batchlimit.stores import MemoryStore
from batchlimit.sync import key_entry, waiting_thread
from tests.apis.test_waiting import is_empty, refund, stand_in_line
from tests.sync.interrupter import Interrupter, lines_interrupted
from tests.sync.stage import DEADLINE, KEY, Clock, Gate, Piped, Stage, nothing, start, together, until

SLOW = 0.001
TEN = Quota(SLOW, 10)


def acquired(limiter: RateLimiter) -> bool:
    """Acquire, and say so: for a line of callers of both kinds."""
    limiter.acquire(KEY)
    return True


# In order


def test_everybody_gets_through_whatever_the_cost() -> None:
    with RateLimiter.from_url("memory://", "2000/s burst 20") as limiter:
        costs = iter([1, 1, 20, 1, 7, 13, 2, 1] * 40)

        def work() -> None:
            for _ in range(40):
                limiter.acquire(KEY, next(costs))

        together(8, work)
        assert limiter.statistics().admitted == 46 * 40


# Until a deadline


class Undisturbed(Event):
    """The event of a caller that looks at the clock only when it is woken: by itself it might send the next request."""

    def wait(self, seconds: float | None) -> bool:
        assert self._lock.acquire(timeout=DEADLINE)
        return True


def test_tokens_that_come_for_someone_who_left_stay_here(
    stage: Stage, limiter: RateLimiter, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_ask, second_ask = Gate(), Gate()
    stage.before = first_ask
    first = start(lambda: limiter.try_acquire(KEY))
    first_ask.await_someone()
    second = start(lambda: limiter.try_acquire(KEY))
    until(lambda: limiter.statistics().waiting == 2)
    alarm = Undisturbed()
    with monkeypatch.context() as patch:
        patch.setattr(key_entry.KeyEntry, "thread_event", lambda _entry: alarm)
        third = stand_in_line(limiter, 4, timeout=0.05)
    stage.before = second_ask
    first_ask.open()
    assert first.result(DEADLINE)
    second_ask.await_someone()  # it speaks for the second and for the third
    clock.pass_by(0.06)
    alarm.set()
    with pytest.raises(RateLimited):
        third.result(DEADLINE)
    second_ask.open()
    assert second.result(DEADLINE)
    limiter.acquire(KEY, 10 - limiter.statistics().admitted, timeout=0)


def test_who_asks_and_never_sleeps_makes_nothing_to_be_woken_by(
    limiter: RateLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(_entry: object) -> Event:
        raise AssertionError("nobody sleeps")

    monkeypatch.setattr(key_entry.KeyEntry, "thread_event", make)
    limiter.acquire(KEY, 0)  # from here on the key is in use
    assert limiter.try_acquire(KEY)
    assert limiter.statistics().policies["*"].from_store == 1


# When the store fails


def fails_to_acquire(limiter: RateLimiter, stage: Stage, when: str, error: BaseException) -> None:
    """Ask for four tokens once, and have that fail before or after the bucket hears of it."""

    def fail() -> None:
        setattr(stage, when, nothing)
        raise error

    setattr(stage, when, fail)
    with pytest.raises(type(error)):
        limiter.acquire(KEY, 4, timeout=0)


@pytest.mark.parametrize("error", [StoreUnavailable("timed out"), KeyboardInterrupt(), SystemExit(3), RuntimeError()])
def test_a_lost_answer_is_asked_for_again_and_not_paid_twice(
    stage: Stage, limiter: RateLimiter, error: BaseException
) -> None:
    fails_to_acquire(limiter, stage, "after", error)
    limiter.acquire(KEY, 4)
    assert stage.asks[0].seq == stage.asks[1].seq
    assert stage.peek(KEY, TEN).level == 6
    limiter.acquire(KEY, 6, timeout=0)
    assert is_empty(limiter)


@pytest.mark.parametrize("error", [StoreUnavailable("refused"), KeyboardInterrupt(), RuntimeError()])
def test_an_ask_that_never_arrived_costs_nothing(stage: Stage, limiter: RateLimiter, error: BaseException) -> None:
    fails_to_acquire(limiter, stage, "before", error)
    limiter.acquire(KEY, 10, timeout=0)
    assert is_empty(limiter)


# When a caller is interrupted


@pytest.mark.parametrize("where", ["before", "after"])
def test_another_takes_over_from_an_interrupted_fetcher(stage: Stage, limiter: RateLimiter, where: str) -> None:
    gate = Gate()

    def interrupt() -> None:
        setattr(stage, where, nothing)
        gate()
        raise KeyboardInterrupt

    setattr(stage, where, interrupt)
    first = start(lambda: limiter.try_acquire(KEY))
    gate.await_someone()
    others = [start(lambda: limiter.try_acquire(KEY)), start(lambda: acquired(limiter))]
    until(lambda: limiter.statistics().waiting == 3)
    gate.open()
    with pytest.raises(KeyboardInterrupt):
        first.result(DEADLINE)
    assert all(each.result(DEADLINE) for each in others)
    limiter.acquire(KEY, 8, timeout=0)
    assert is_empty(limiter)


def stand_in_line_to_be_interrupted(
    limiter: RateLimiter, cost: int, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> "Future[None]":
    """Stand in line, and be interrupted in one's sleep as soon as the gate opens."""

    class Interrupted(Event):
        def wait(self, seconds: float | None) -> bool:
            gate()
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(key_entry.KeyEntry, "thread_event", lambda _entry: Interrupted())
        waiter = stand_in_line(limiter, cost)
        gate.await_someone()
    return waiter


def test_an_interrupted_waiter_leaves_the_line_to_the_others(
    limiter: RateLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    limiter.acquire(KEY, 10)
    gate = Gate()
    first = stand_in_line_to_be_interrupted(limiter, 8, gate, monkeypatch)
    second = stand_in_line(limiter, 3)
    refund(limiter, 3)
    assert not second.done()
    gate.open()
    with pytest.raises(KeyboardInterrupt):
        first.result(DEADLINE)
    second.result(DEADLINE)
    assert limiter.statistics().waiting == 0


def test_tokens_given_to_a_waiter_who_was_interrupted_are_anothers(
    limiter: RateLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    limiter.acquire(KEY, 10)
    gate = Gate()
    waiter = stand_in_line_to_be_interrupted(limiter, 4, gate, monkeypatch)
    refund(limiter, 5)
    limiter.acquire(KEY, timeout=0)  # asks for both
    assert limiter.statistics().waiting == 0  # the waiter was admitted, and only has to wake up
    gate.open()
    with pytest.raises(KeyboardInterrupt):
        waiter.result(DEADLINE)
    limiter.acquire(KEY, 4, timeout=0)
    assert is_empty(limiter)
    assert limiter.statistics().admitted == 15


def test_tokens_of_an_interrupted_waiter_that_were_told_spent_are_spent(
    limiter: RateLimiter, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store no longer counts them as leased: whoever spent them now would spend what is refilled twice."""
    limiter.acquire(KEY, 10)
    gate = Gate()
    waiter = stand_in_line_to_be_interrupted(limiter, 4, gate, monkeypatch)
    refund(limiter, 5)
    limiter.acquire(KEY, timeout=0)
    assert is_empty(limiter)  # by an ask, which told that all is spent
    gate.open()
    with pytest.raises(KeyboardInterrupt):
        waiter.result(DEADLINE)
    assert limiter.statistics().held <= stage.peek(KEY, TEN).outstanding


def two_callers_of_whom_the_first_is_interrupted(n: int) -> bool:
    """Let the first be interrupted at its nth line; return whether it has so many. The second wants all tokens."""
    clock = Clock()
    stage = Stage(MemoryStore(clock))
    gate = stage.before = Gate()
    limiter = RateLimiter(stage, Quota(100.0, 10), sizer=FixedBatch(1), clock=clock)
    interrupter = Interrupter(n, "sync/key_entry", "sync/waiting_thread", under_lock=False)
    first = start(lambda: interrupter.run(lambda: limiter.try_acquire(KEY, 4)))
    until(lambda: first.done() or gate.reached)
    second = start(lambda: limiter.acquire(KEY, 10))
    until(lambda: second.done() or limiter.statistics().waiting >= (1 if first.done() else 2))
    gate.open()
    interrupted = first.result(DEADLINE)
    deadline = time.monotonic() + DEADLINE
    while (
        not second.done()
    ):  # the second may have told the store that the tokens of the first are spent: so time goes on
        assert time.monotonic() < deadline, f"after an interrupt in {interrupter.line} the next caller waits for ever"
        clock.pass_by(0.001)
        time.sleep(0.001)
    second.result()
    assert limiter.statistics().waiting == 0, f"a ghost stands in line since {interrupter.line}"
    return interrupted


def test_a_caller_may_be_interrupted_at_any_line(without_refresher: None) -> None:
    """Ctrl-C, or a signal handler that raises, falls where it will. Those behind it must not wait for ever."""
    lines = lines_interrupted(two_callers_of_whom_the_first_is_interrupted)
    assert lines > 20


KEY_ALONE, THREE = [KEY], ["a", "b", "c"]
RULES = [
    *(f"sync/{each}" for each in ("limiter", "waiting_thread", "key_entry", "registry")),
    "sync/spends",
    *(f"keyspace/{each}" for each in ("kept_keys", "keyspace", "spending")),
    *(f"reservoir/{each}" for each in ("sizing", "wait_queue", "denial_cache", "requests", "admission", "reservoir")),
    *(f"reservoir/{each}" for each in ("fallback", "forecast", "key_state", "lifecycle", "outage", "tokens")),
    *("reservoir/bucket_view", "keyspace/several"),
]


def then_nobody_hangs_and_nothing_is_minted(
    n: int, keys: Sequence[str], batch: int, spent: int, call: Callable[[RateLimiter], object]
) -> bool:
    """Let a call be interrupted at its nth line, anywhere in the rules; return whether it has so many."""
    clock = Clock()
    store = Piped(MemoryStore(clock)) if keys is THREE else MemoryStore(clock)
    limiter = RateLimiter(store, TEN, sizer=FixedBatch(batch), clock=clock)
    if spent or keys is KEY_ALONE:  # a cost of 0 brings a key into use
        limiter.acquire_all(dict.fromkeys(keys, spent))
    clock.now += 2.0 if batch == 1 else 0.0
    interrupter = Interrupter(n, *RULES, under_lock=True)
    if not start(lambda: interrupter.run(lambda: call(limiter))).result(DEADLINE):
        return False
    interrupter.left_all_sound(limiter, *keys, most=10)
    return True


@pytest.mark.parametrize(
    ("keys", "batch", "spent", "call"),
    [
        (KEY_ALONE, 1, 0, lambda limiter: limiter.try_acquire(KEY, 4)),
        (KEY_ALONE, 1, 3, lambda limiter: limiter.try_acquire(KEY, 4)),
        (KEY_ALONE, 1, 4, lambda limiter: limiter.refund(KEY, 4)),
        (KEY_ALONE, 1, 4, lambda limiter: (limiter.acquire(KEY), limiter.refund(KEY), limiter.pause(KEY, 1.0))),
        (THREE, 1, 0, lambda limiter: limiter.acquire_all(dict.fromkeys(THREE, 4))),
        (THREE, 10, 1, lambda limiter: limiter.decide_all(dict.fromkeys(THREE, 2))),
    ],
    ids=["first call", "later call", "refund", "pause", "several", "several from memory"],
)
def test_an_interrupt_anywhere_loses_tokens_at_most(
    without_refresher: None, keys: Sequence[str], batch: int, spent: int, call: Callable[[RateLimiter], object]
) -> None:
    lines = lines_interrupted(lambda n: then_nobody_hangs_and_nothing_is_minted(n, keys, batch, spent, call))
    assert lines > (100 if batch == 1 else 20)


def nested(calls: int, call: Callable[[], object]) -> object:
    return call() if calls <= 0 else nested(calls - 1, call)


def nested_by_map(calls: int, call: Callable[[], object]) -> object:
    """The same with a function in C between any two calls, which Python 3.11 counts too."""
    return call() if calls <= 0 else next(map(partial(nested_by_map, calls - 1), [call]))


@contextmanager
def may_nest(calls: int) -> Iterator[None]:
    """Allow so many calls to be nested; of functions in C, Python 3.12.1 allows no more for that."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(calls)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def deepest(nest: Callable[[int, Callable[[], object]], object]) -> int:
    """How many calls can be nested so, from here."""

    def is_too_deep(calls: int) -> bool:
        try:
            nest(calls, lambda: None)
        except RecursionError:
            return True
        return False

    return bisect_left(range(sys.getrecursionlimit()), True, key=is_too_deep)


@pytest.mark.parametrize(("nest", "most"), [(nested, 1000), (nested_by_map, 1000), (nested_by_map, 3000)])
@pytest.mark.parametrize(
    "call",
    [
        lambda limiter: limiter.try_acquire(KEY),
        lambda limiter: limiter.decide(KEY),
        lambda limiter: limiter.acquire(KEY, timeout=0),
        lambda limiter: limiter.acquire(KEY, timeout=60.0),
        lambda limiter: limiter.acquire_all({KEY: 1, "another": 1}),
        lambda limiter: limiter.reserve(KEY, 1),
        lambda limiter: limiter.refund(KEY),
    ],
    ids=["try_acquire", "decide", "acquire now", "acquire soon", "acquire_all", "reserve", "refund"],
)
def test_a_call_that_is_nested_too_deep_leaves_nobody_in_line(
    without_refresher: None,
    clock: Clock,
    call: Callable[[RateLimiter], object],
    nest: Callable[[int, Callable[[], object]], object],
    most: int,
) -> None:
    with may_nest(most):
        leaves_nobody_in_line(clock, call, nest)


def leaves_nobody_in_line(
    clock: Clock, call: Callable[[RateLimiter], object], nest: Callable[[int, Callable[[], object]], object]
) -> None:
    most, ends = deepest(nest), set()
    for room in range(60):
        with RateLimiter(Stage(MemoryStore(clock)), TEN, sizer=FixedBatch(1), clock=clock) as limiter:
            limiter.acquire(KEY)
            try:
                nest(most - room, partial(call, limiter))
                ends.add("done")
            except RecursionError:
                ends.add("too deep")
            assert limiter.statistics().waiting == 0, f"with room for {room} calls"
            entries = limiter._registry.entries.values()
            assert [entry for entry in entries if entry.reservoir.state.in_flight] == [], f"with room for {room} calls"
    assert ends == {"done", "too deep"}


def test_who_leaves_once_more_after_an_interrupt_gets_its_tokens_back_once(
    clock: Clock, without_refresher: None
) -> None:
    def interrupted_at(n: int) -> bool:
        limiter = RateLimiter(MemoryStore(clock), TEN, sizer=FixedBatch(10), clock=clock)
        assert limiter.try_acquire(KEY, 2)
        caller = waiting_thread.WaitingThread(limiter._registry.live_entry(KEY), 3, NO_WAIT)
        assert caller.wait() is not None
        interrupter = Interrupter(n, "reservoir/lifecycle", under_lock=True)
        was = interrupter.run(caller.leave)
        caller.leave()
        interrupter.left_all_sound(limiter, KEY, most=8)
        limiter.close()
        return was

    assert lines_interrupted(interrupted_at) > 5
