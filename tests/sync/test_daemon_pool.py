"""Threads that wait for a store, so that callers need not."""

import threading
from concurrent.futures import Future
from functools import partial

import pytest

from batchlimit.sync import daemon_pool as module
from batchlimit.sync.daemon_pool import DaemonPool
from tests.sync.stage import DEADLINE, Gate, start, until


def fail() -> None:
    raise LookupError("no such thing")


def test_it_returns_and_raises_what_the_work_does() -> None:
    pool = DaemonPool()
    assert pool.run(lambda: 5, DEADLINE) == 5
    with pytest.raises(LookupError, match="no such thing"):
        pool.run(fail, DEADLINE)
    pool.stop()


def test_who_asked_leaves_in_time_and_the_work_goes_on() -> None:
    pool, gate, done = DaemonPool(), Gate(), threading.Event()

    def work() -> None:
        gate()
        done.set()

    while not gate.reached:  # what has not begun by then never will
        with pytest.raises(TimeoutError):
            pool.run(work, 0.01)
    gate.open()
    assert done.wait(DEADLINE)
    pool.stop()


def test_one_thread_does_for_calls_that_follow_each_other() -> None:
    pool = DaemonPool()
    for _ in range(50):
        assert pool.run(threading.get_ident, DEADLINE)
        until(lambda: pool._idle == 1)
    assert pool._threads == 1
    pool.stop()
    until(lambda: pool._threads == 0)


def test_threads_are_bounded_and_what_waited_in_vain_never_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 3)
    pool, gate = DaemonPool(), Gate()
    begun: list[int] = []

    def work(n: int) -> int:
        begun.append(n)
        gate()
        return n

    stuck: list[Future[int]] = [start(lambda n=n: pool.run(lambda: work(n), DEADLINE)) for n in range(3)]  # type: ignore[misc]
    until(lambda: len(begun) == 3)
    for _ in range(20):
        with pytest.raises(TimeoutError):
            pool.run(lambda: begun.append(99), 0.001)
    assert not pool._queued, "nor is it kept"
    waiting = start(lambda: pool.run(lambda: work(3), DEADLINE))
    assert pool._threads == 3
    gate.open()
    assert sorted(each.result(DEADLINE) for each in (*stuck, waiting)) == [0, 1, 2, 3]
    assert 99 not in begun
    pool.stop()
    until(lambda: pool._threads == 0)


def test_idle_threads_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IDLE", 0.001)
    pool = DaemonPool()
    for n in range(30):
        assert pool.run(lambda n=n: n, DEADLINE) == n  # type: ignore[misc]
    until(lambda: pool._threads == 0)
    assert pool.run(lambda: 5, DEADLINE) == 5, "and others come when there is something to do"
    pool.stop()


def test_many_callers_at_once_all_get_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IDLE", 0.0005)  # threads come and go all the time
    pool = DaemonPool()

    def call(n: int) -> list[int]:
        return [pool.run(partial(int, n * 1000 + i), DEADLINE) for i in range(200)]

    callers = [start(partial(call, n)) for n in range(8)]
    for n, each in enumerate(callers):
        assert each.result(DEADLINE) == [n * 1000 + i for i in range(200)]
    pool.stop()


def test_after_its_end_callers_do_it_themselves() -> None:
    pool = DaemonPool()
    pool.stop()
    assert pool.run(threading.get_ident, DEADLINE) == threading.get_ident()
    assert pool._threads == 0


def test_without_a_thread_the_caller_does_it_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the interpreter's end no thread can be started."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert DaemonPool().run(threading.get_ident, DEADLINE) == threading.get_ident()


class Hung:
    """Work that never ends, in a time of its own: each wait for it ends as late as the list says, and then in time."""

    def __init__(self, late: list[float]) -> None:
        self.now, self._late = 1000.0, list(late)

    def clock(self) -> float:
        return self.now

    def result(self, timeout: float) -> None:
        self.now += timeout + (self._late.pop(0) if self._late else 0.0)
        raise TimeoutError

    def done(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("late", "most", "is_failing", "waits"),
    [
        # in time: a budget, or as long as it may take to connect
        ([], 0.0, False, 0.1),
        ([], 0.3, True, 0.1),
        ([], 0.3, False, 0.3),
        # late by a little, however often: half a budget more, once
        ([0.011], 0.0, False, 0.1 + 0.011 + 0.05),
        ([0.02] * 100, 0.0, False, 0.1 + 0.05 + 2 * 0.02),
        ([0.02] * 100, 0.3, True, 0.1 + 0.05 + 2 * 0.02),
        ([0.009] * 100, 0.0, False, 0.1 + 0.009),
        # late by a stall: another budget for each, but three times at the most
        ([0.2], 0.0, False, 0.1 + 0.2 + 0.1),
        ([0.2, 0.06], 0.0, False, 0.1 + 0.2 + 0.1 + 0.06 + 0.1),
        ([0.2] * 100, 0.0, False, 4 * (0.1 + 0.2) + 0.05 + 0.2),
        # while it may take longer to connect, being late costs nothing
        ([0.02, 0.02], 0.35, False, 3 * 0.1 + 2 * 0.02 + 0.1),
    ],
)
def test_who_is_late_itself_waits_a_little_longer_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, late: list[float], most: float, is_failing: bool, waits: float
) -> None:
    hung = Hung(late)
    monkeypatch.setattr(module, "monotonic", hung.clock)
    with pytest.raises(TimeoutError):
        module._awaited(hung, 0.1, most, lambda: is_failing)  # type: ignore[arg-type]
    assert hung.now - 1000.0 == pytest.approx(waits)
