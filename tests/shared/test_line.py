"""Tables of who waits in one process, and who is next."""

from batchlimit.concurrency.queue import Queue
from batchlimit.shared.held_slots import Line, SlotWaiter


def waiter(priority: int = 0, is_patient: bool = True) -> SlotWaiter:
    return SlotWaiter(lambda: None, is_patient, priority, None)


def line_of(waiters: list[SlotWaiter], queue: Queue | None = None) -> Line:
    line = Line(queue or Queue(100, None))
    for each in waiters:
        line.add(each)
    return line


def test_only_the_patient_count_against_the_length() -> None:
    line = line_of([waiter(is_patient=False), waiter()], Queue(2, None))
    assert line.patient == 1
    line.add(waiter())
    line.remove(line.oldest())
    assert line.patient == 2


def test_in_a_full_line_a_higher_priority_takes_the_place_of_the_last_patient_one() -> None:
    low, high, last, asking = waiter(0), waiter(2), waiter(0), waiter(0, is_patient=False)
    line = line_of([low, high, last, asking], Queue(3))
    assert line.displaced_by(0) is None
    assert line.displaced_by(1) is last
    line.remove(last)
    line.remove(low)
    assert [line.displaced_by(priority) for priority in (1, 2)] == [None, None]
