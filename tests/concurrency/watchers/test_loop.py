import asyncio
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from batchlimit.concurrency.watchers import LoopLagWatcher
from tests.sync.stage import Clock


class LoopThread:
    """An event loop that turns in a thread of its own, and can be held up there."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.held = threading.Event()
        self.let_go = threading.Event()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.turn()

    def hold(self) -> None:
        """Block the loop until `let_go`; return when it stands."""
        self.loop.call_soon_threadsafe(self._stand)
        assert self.held.wait(60)

    def turn(self) -> None:
        """Return when the loop has made all calls that were due."""
        turned = threading.Event()
        self.loop.call_soon_threadsafe(turned.set)
        assert turned.wait(60)

    def stop(self) -> None:
        self.let_go.set()
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(60)

    def close(self) -> None:
        self.stop()
        self.loop.close()

    def _stand(self) -> None:
        self.held.set()
        self.let_go.wait(60)


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


def patiently(event: threading.Event, _seconds: float) -> bool:
    return event.wait(60)


def impatiently(clock: Clock) -> Callable[[threading.Event, float], bool]:
    """A wait in vain, in which all of the time passes."""

    def wait(event: threading.Event, seconds: float) -> bool:
        clock.now += seconds
        return event.is_set()

    return wait


def test_a_loop_that_makes_the_call_at_once_does_not_lag(thread: LoopThread, clock: Clock) -> None:
    assert LoopLagWatcher(thread.loop, clock=clock, wait=patiently).poll() is None


@pytest.mark.parametrize(
    ("lag", "event"),
    [(0.0625, None), (0.125, "loop lagged for 0.125 s"), (2.0, "loop lagged for 2.000 s")],
)
def test_the_lag_is_the_time_from_when_a_call_is_due_to_when_it_is_made(
    thread: LoopThread, clock: Clock, lag: float, event: str | None
) -> None:
    def wait(made: threading.Event, _seconds: float) -> bool:
        clock.now += lag
        thread.let_go.set()
        thread.turn()
        clock.now += 50.0  # it is not the watcher's waking up that counts
        return made.wait(60)

    thread.hold()
    assert LoopLagWatcher(thread.loop, 0.125, clock=clock, wait=wait).poll() == event


def test_a_loop_that_does_not_answer_lags_so_far(thread: LoopThread, clock: Clock) -> None:
    watcher = LoopLagWatcher(thread.loop, clock=clock, wait=impatiently(clock))
    thread.hold()
    assert watcher.poll() == "loop lagged for 1.000 s so far"
    clock.now += 29.0
    assert watcher.poll() == "loop lagged for 31.000 s so far"


def test_patience_is_how_long_it_waits(thread: LoopThread, clock: Clock) -> None:
    thread.hold()
    assert LoopLagWatcher(thread.loop, patience=0.05, clock=clock, wait=impatiently(clock)).poll() is None
    watcher = LoopLagWatcher(thread.loop, patience=0.25, clock=clock, wait=impatiently(clock))
    assert watcher.poll() == "loop lagged for 0.250 s so far"


def test_a_loop_that_owes_a_call_is_given_no_second_one(
    thread: LoopThread, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []
    real = thread.loop.call_soon_threadsafe

    def count(call: Callable[[], None]) -> asyncio.Handle:
        given.append(call)
        return real(call)

    watcher = LoopLagWatcher(thread.loop, clock=clock, wait=impatiently(clock))
    thread.hold()
    monkeypatch.setattr(thread.loop, "call_soon_threadsafe", count)
    watcher.poll()
    watcher.poll()
    assert len(given) == 1
    monkeypatch.undo()
    thread.let_go.set()
    thread.turn()
    monkeypatch.setattr(thread.loop, "call_soon_threadsafe", count)
    watcher._wait = patiently
    watcher.poll()
    assert len(given) == 2


def test_a_call_made_between_two_polls_is_not_counted_against_the_next(thread: LoopThread, clock: Clock) -> None:
    watcher = LoopLagWatcher(thread.loop, clock=clock, wait=impatiently(clock))
    thread.hold()
    assert watcher.poll() is not None
    clock.now += 29.0
    thread.let_go.set()
    thread.turn()
    watcher._wait = patiently
    assert watcher.poll() is None


def test_a_loop_that_does_not_run_does_not_lag(clock: Clock) -> None:
    loop = asyncio.new_event_loop()
    watcher = LoopLagWatcher(loop, clock=clock, wait=impatiently(clock))
    assert watcher.poll() is None
    loop.close()
    assert watcher.poll() is None


def test_a_loop_that_ends_while_it_owes_a_call_does_not_lag(thread: LoopThread, clock: Clock) -> None:
    def wait(made: threading.Event, seconds: float) -> bool:
        clock.now += seconds
        thread.close()
        made.clear()
        return False

    assert LoopLagWatcher(thread.loop, clock=clock, wait=wait).poll() is None


def test_a_loop_closed_just_now_does_not_lag(thread: LoopThread, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = LoopLagWatcher(thread.loop, clock=clock, wait=patiently)
    thread.close()
    monkeypatch.setattr(thread.loop, "is_running", lambda: True)
    monkeypatch.setattr(thread.loop, "call_soon_threadsafe", _closed)
    assert watcher.poll() is None
    monkeypatch.undo()


def _closed(_call: object) -> None:
    raise RuntimeError("Event loop is closed")


def test_in_a_forked_child_the_loop_is_the_parents(
    thread: LoopThread, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = LoopLagWatcher(thread.loop, clock=clock, wait=impatiently(clock))
    thread.hold()
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    assert watcher.poll() is None


def test_without_a_loop_it_watches_the_one_that_runs() -> None:
    async def poll() -> str | None:
        watcher = LoopLagWatcher(threshold=60.0, patience=60.0)
        return await asyncio.get_running_loop().run_in_executor(None, watcher.poll)

    assert asyncio.run(poll()) is None


def test_without_a_loop_that_runs_it_must_be_told_one() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        LoopLagWatcher()


async def test_a_loop_cannot_poll_itself() -> None:
    with pytest.raises(RuntimeError, match="another thread"):
        LoopLagWatcher().poll()


@pytest.mark.parametrize("seconds", [0, -0.1, float("inf"), float("nan")])
def test_times_are_finite_and_above_0(thread: LoopThread, seconds: float) -> None:
    with pytest.raises(ValueError, match=repr(seconds)):
        LoopLagWatcher(thread.loop, seconds)
    with pytest.raises(ValueError, match=repr(seconds)):
        LoopLagWatcher(thread.loop, patience=seconds)


def test_a_loop_is_an_event_loop() -> None:
    with pytest.raises(TypeError, match=r"0\.1"):
        LoopLagWatcher(0.1)  # type: ignore[arg-type]
