import logging
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from batchlimit.concurrency import WatcherStatistics
from batchlimit.concurrency.watchers import MemoryWatcher, Rounds, Watcher
from batchlimit.concurrency.watchers.rounds import Polled

Events = tuple[str, ...]


class Scripted:
    """Says what it is told to say, one after the other, and then nothing."""

    def __init__(self, *answers: str | BaseException | None, name: str = "scripted") -> None:
        self.name = name
        self._answers = list(answers)

    def poll(self) -> str | None:
        answer = self._answers.pop(0) if self._answers else None
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Hanging:
    """Hangs in each poll until `let_go`; then it has seen something."""

    name = "hanging"

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.polls = 0
        self.let_go = threading.Event()

    def poll(self) -> str | None:
        self.polls += 1
        self.started.release()
        assert self.let_go.wait(60)
        return "hanging no more"


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    """A watcher that hangs until the end of the test, at most."""
    found = Hanging()
    yield found
    found.let_go.set()


class Hours:
    """A clock for rounds: a wait with a reason to end waits for it; any other ends at once, and its time has passed."""

    def __init__(self, *hanging: Hanging) -> None:
        self.now = 0.0
        self.waits: list[float] = []
        self._hanging = hanging
        self.rounds: Rounds | None = None

    def __call__(self) -> float:
        return self.now

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.waits.append(seconds)
        assert self.rounds is not None
        asked = [each for each in self.rounds._watched if each.awaited]
        if all(isinstance(each._watcher, Hanging) for each in asked) and not event.is_set():
            self.now += seconds
            return False
        return event.wait(60)


def rounds_of(*watchers: Watcher, every: float = 30.0) -> Rounds:
    """Rounds that no thread makes: the test does, and no time passes."""
    hours = Hours()
    hours.rounds = Rounds(watchers, lambda _events: None, every=every, clock=hours, wait=hours.wait)
    return hours.rounds


class Told:
    """What the rounds told, one after the other."""

    def __init__(self) -> None:
        self._events: list[Events] = []
        self._more = threading.Condition()

    def __call__(self, events: Events) -> None:
        with self._more:
            self._events.append(events)
            self._more.notify_all()

    def first(self, count: int) -> list[Events]:
        with self._more:
            assert self._more.wait_for(lambda: len(self._events) >= count, 60)
            return self._events[:count]


@contextmanager
def begun(*watchers: Watcher, tell: Callable[[Events], None], every: float = 1e-4) -> Iterator[Rounds]:
    """Rounds that their own thread makes, as fast as it can; no poll is too slow: the clock stands still meanwhile."""
    rounds = Rounds(watchers, tell, every=every)
    rounds.start()
    try:
        yield rounds
    finally:
        rounds.stop(60)


def alive(name: str) -> bool:
    return any(thread.name == name for thread in threading.enumerate())


def test_a_round_returns_what_all_watchers_saw_in_their_order() -> None:
    rounds = rounds_of(Scripted("a", None), Scripted(None, None), Scripted("b", "c"))
    assert [rounds.poll_once(), rounds.poll_once(), rounds.poll_once()] == [("a", "b"), ("c",), ()]


def test_a_watcher_that_fails_has_seen_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "batchlimit")
    rounds = rounds_of(Scripted(*[OSError("gone")] * 9, "back", name="disk"), Scripted(*["full"] * 10))
    assert [rounds.poll_once() for _ in range(10)] == [("full",)] * 9 + [("back", "full")]
    assert rounds.statistics()[0] == WatcherStatistics("disk", polls=10, events=1, errors=9, timeouts=0)
    assert [record.getMessage() for record in caplog.records] == [
        "watcher disk failed, which counts as nothing seen: OSError('gone')"
    ]


@pytest.mark.parametrize("answer", [True, 0.93, b"full", SystemExit(1)], ids=repr)
def test_what_is_no_text_is_an_error_and_so_is_the_end_of_the_thread(answer: Any) -> None:
    rounds = rounds_of(Scripted(answer))
    assert rounds.poll_once() == ()
    assert rounds.statistics()[0].errors == 1


def test_a_machine_without_threads_to_spare_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = rounds_of(Scripted("full"))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _no_thread)
        assert rounds.poll_once() == ()
    assert rounds.statistics()[0].errors == 1
    assert rounds.poll_once() == ("full",)


def _no_thread(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_poll_that_hangs_is_not_started_a_second_time(hanging: Hanging) -> None:
    rounds = rounds_of(hanging)
    for _ in range(3):
        rounds.poll_once()
    assert hanging.polls == 1
    assert rounds.statistics() == (WatcherStatistics("hanging", polls=1, events=0, errors=0, timeouts=3),)


def test_a_poll_that_hung_counts_as_a_timeout_in_the_round_in_which_it_ends(hanging: Hanging) -> None:
    watched = Polled(hanging)
    for _ in range(2):
        watched.ask(lambda: None)
    hanging.let_go.set()
    ended()
    assert watched.answer() is None
    assert watched.statistics().timeouts == 1


def test_a_round_ends_as_soon_as_all_polls_have(hanging: Hanging) -> None:

    def wait(event: threading.Event, _seconds: float) -> bool:
        hanging.let_go.set()
        assert event.wait(60)
        return True

    rounds = Rounds([hanging, Scripted("a")], print, wait=wait)
    assert rounds.poll_once() == ("hanging no more", "a")


def test_five_timeouts_in_a_row_are_one_event_and_the_count_starts_anew(hanging: Hanging) -> None:
    rounds = rounds_of(hanging)
    seen = [rounds.poll_once() for _ in range(11)]
    event = ("hanging has not answered for 5 periods",)
    assert seen == [(), (), (), (), event, (), (), (), (), event, ()]
    assert rounds.statistics() == (WatcherStatistics("hanging", polls=1, events=2, errors=0, timeouts=11),)


def ended() -> None:
    """Wait for polls to end that hung: their threads do."""
    for thread in threading.enumerate():
        if thread.name.startswith("batchlimit-watcher"):
            thread.join(60)


def test_an_answer_after_its_round_is_thrown_away(hanging: Hanging) -> None:
    rounds = rounds_of(hanging)
    rounds.poll_once()
    hanging.let_go.set()
    ended()
    hanging.poll = lambda: None  # type: ignore[method-assign]
    assert rounds.poll_once() == ()
    assert rounds.statistics() == (WatcherStatistics("hanging", polls=2, events=0, errors=0, timeouts=1),)


@pytest.mark.parametrize("answer", [None, "full", OSError("gone")])
def test_a_poll_that_ends_in_time_ends_the_row_of_timeouts(answer: str | Exception | None) -> None:
    class Moody(Hanging):
        answers = False

        def poll(self) -> str | None:
            return Scripted(answer).poll() if self.answers else super().poll()

    moody = Moody()
    rounds = rounds_of(moody)
    for _ in range(4):
        rounds.poll_once()
    moody.let_go.set()
    ended()
    moody.answers = True
    rounds.poll_once()
    moody.answers = False
    moody.let_go.clear()
    assert [rounds.poll_once() for _ in range(4)] == [()] * 4
    assert rounds.poll_once() == ("hanging has not answered for 5 periods",)
    moody.let_go.set()


def test_rounds_begin_a_period_apart_and_at_once_where_one_took_longer() -> None:
    now = [0.0]
    began: list[float] = []
    waits: list[float] = []

    class Slow(Rounds):
        def poll_once(self) -> Events:
            began.append(now[0])
            now[0] += (2.0, 40.0, 2.0, 2.0)[len(began) - 1]
            return ()

    def wait(_event: threading.Event, seconds: float) -> bool:
        waits.append(seconds)
        now[0] += seconds
        if len(waits) == 3:
            rounds.stop()
        return False

    def tell(_events: Events) -> None:
        now[0] += 1.0

    rounds = Slow([Scripted()], tell, every=30.0, clock=lambda: now[0], wait=wait)
    rounds._run()
    assert began == [0.0, 30.0, 71.0, 101.0]
    assert waits == [27.0, 27.0, 27.0]


def test_a_round_that_nobody_can_use_is_logged_and_the_next_one_told(caplog: pytest.LogCaptureFixture) -> None:
    told = Told()

    def tell(events: Events) -> None:
        told(events)
        if events == ("a",):
            raise ValueError("no use")

    with begun(Scripted("a", "b"), tell=tell):
        assert told.first(2) == [("a",), ("b",)]
    assert "what the watchers saw was lost: ('a',)" in caplog.text


def test_starting_twice_starts_one_thread() -> None:
    told = Told()
    with begun(Scripted(), tell=told, every=60.0) as rounds:
        told.first(1)
        rounds.start()
        assert sum(thread.name == "batchlimit-watchers" for thread in threading.enumerate()) == 1
    assert not alive("batchlimit-watchers")


def test_stopping_does_not_wait_for_a_poll_that_hangs_and_nothing_is_told() -> None:
    hanging, told = Hanging(), Told()
    with begun(hanging, Scripted("full"), tell=told, every=1e9) as rounds:
        assert hanging.started.acquire(timeout=60)
        rounds.stop(60)
        assert not alive("batchlimit-watchers")
    assert told._events == []
    assert [each.timeouts for each in rounds.statistics()] == [0, 0]
    hanging.let_go.set()


def test_what_is_told_may_stop_the_rounds() -> None:
    stopped = threading.Event()

    def tell(_events: Events) -> None:
        rounds.stop()
        stopped.set()

    rounds = Rounds([Scripted()], tell)
    rounds.start()
    assert stopped.wait(60)
    rounds.stop(60)
    assert not alive("batchlimit-watchers")


def test_what_was_stopped_stays_stopped(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    rounds = Rounds([Scripted()], print)
    rounds.stop()
    monkeypatch.setattr(threading.Thread, "start", _no_thread)
    rounds.start()
    assert not caplog.records
    assert "stopped" in repr(rounds)


def test_without_a_thread_to_spare_the_next_start_tries_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told()
    rounds = Rounds([Scripted("a")], told)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _no_thread)
        rounds.start()
    assert "nobody watches the machine: can't start new thread" in caplog.text
    rounds.start()
    assert told.first(1) == [("a",)]
    rounds.stop(60)


@pytest.mark.parametrize("watcher", [MemoryWatcher, "memory", None, object()])
def test_a_watcher_has_a_name_and_can_be_polled(watcher: object) -> None:
    with pytest.raises(TypeError, match="a watcher must"):
        Rounds([watcher], print)  # type: ignore[list-item]


@pytest.mark.parametrize("every", [0, -1.0, float("inf"), float("nan")])
def test_a_period_is_a_time(every: float) -> None:
    with pytest.raises(ValueError, match=repr(every)):
        Rounds([], print, every=every)


FORK = """
import os, signal, sys, threading
from batchlimit.concurrency.watchers import Rounds

class Parents:
    name = "watcher"

    def __init__(self):
        self.hangs, self.started, self.parent = threading.Event(), threading.Event(), os.getpid()

    def poll(self):
        if os.getpid() == self.parent:
            self.started.set()
            self.hangs.wait()
        return f"seen by {os.getpid()}"

told, heard = [], threading.Event()

def tell(events):
    told.append(events)
    heard.set()

watcher = Parents()
rounds = Rounds([watcher], tell, every=1e9)
rounds.start()
watcher.started.wait()
# As if the parent's threads held all there is to hold just now.
with rounds._bell._cond, rounds._starting:
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        heard.wait()
        rounds.stop(60)
        alive = [t.name for t in threading.enumerate() if t is not threading.main_thread()]
        ok = told == [(f"seen by {os.getpid()}",)] and not [n for n in alive if n == "batchlimit-watchers"]
        print(told, alive, flush=True)
        os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
rounds.stop(60)
print(told, rounds)
sys.exit(os.waitstatus_to_exitcode(status) or len(told))
"""

STOPPED = """
import os, signal, sys, threading
from batchlimit.concurrency.watchers import Rounds

class Nothing:
    name = "nothing"

    def poll(self):
        return None

idle, stopped = Rounds([Nothing()], print), Rounds([Nothing()], print)
stopped.start()
stopped.stop(60)
child = os.fork()
if child == 0:
    signal.alarm(60)
    others = threading.active_count() - 1
    idle.stop()
    stopped.stop()
    os._exit(others)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("program", [FORK, STOPPED], ids=["under way", "idle or stopped"])
def test_a_forked_child_makes_rounds_of_its_own_if_its_parent_did(program: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
