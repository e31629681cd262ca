"""The clock moves to the earliest wait, and only when nobody who was woken is still about to act."""

import pytest

from batchlimit import Quota
from batchlimit.stores import Ask
from batchlimit.testing.virtual_time import ThreadEvent, VirtualTime
from batchlimit.testing.world import VirtualStore
from tests.sync.stage import DEADLINE, Gate, start, until


def is_asleep(time: VirtualTime, event: ThreadEvent) -> bool:
    with time.changed:  # a thread that is about to move the clock holds it
        return event in time.asleep


def test_a_thread_that_was_woken_acts_before_the_clock_moves_on() -> None:
    time, gate = VirtualTime(), Gate()
    first, second = ThreadEvent(time), ThreadEvent(time)

    def act() -> None:
        first.wait(10)
        gate()
        first.over()

    acting = start(act)
    gate.await_someone()
    waiting = start(lambda: second.wait(5))
    until(lambda: is_asleep(time, second) or waiting.done())
    assert time.elapsed == 10
    gate.open()
    acting.result(DEADLINE)
    waiting.result(DEADLINE)
    assert time.elapsed == 15


def test_the_clock_stops_at_the_earliest_wait() -> None:
    time = VirtualTime()
    late, early = ThreadEvent(time), ThreadEvent(time)
    time.held = True

    def wait(event: ThreadEvent, seconds: float) -> float:
        event.wait(seconds)
        at = time.elapsed
        event.over()
        return at

    waits = [start(lambda: wait(late, 60)), start(lambda: wait(early, 12))]
    until(lambda: is_asleep(time, late) and is_asleep(time, early))
    time.held = False
    time.move(time())
    assert [each.result(DEADLINE) for each in waits] == [60, 12]


def test_a_thread_whose_event_is_set_waits_no_longer() -> None:
    time = VirtualTime()
    event = ThreadEvent(time)
    event.set()
    event.wait(10)
    assert time.elapsed == 0
    event.wait(10)
    assert time.elapsed == 10


def test_the_clock_never_runs_backwards() -> None:
    time = VirtualTime()
    time.advance(10)
    time.move(time() - 5)
    assert time.elapsed == pytest.approx(10, abs=1e-3)


QUOTA = Quota.parse("10/hour")


@pytest.mark.parametrize(
    ("held", "seconds", "level", "outstanding"),
    [
        (5, 60.0, 10, 0),  # the lease ends meanwhile: what was not spent comes home
        (2, 60.0, 7, 0),
        (0, 60.0, 5, 0),
        (5, 0.01, 5, 5),
        (2, 0.01, 5, 2),
    ],
)
def test_before_a_move_a_store_learns_what_was_spent(held: int, seconds: float, level: int, outstanding: int) -> None:
    time = VirtualTime()
    store = VirtualStore(time)
    assert store.take("ann", QUOTA, Ask("one", 1, need=1, queued=1, want=5)).granted == 5
    store.leave(time() + seconds, lambda name, key: held if (name, key) == ("one", "ann") else 0)
    time.advance(seconds)
    seen = store.peek("ann", QUOTA)
    assert (seen.level, seen.outstanding) == (level, outstanding)
