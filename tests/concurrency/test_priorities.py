"""Waiters with priorities: the order in which they are served, and the one that leaves a full queue."""

from collections.abc import Iterable

import pytest

from batchlimit import Partitions, Queue
from batchlimit.concurrency.gate import Gate
from batchlimit.concurrency.queue import GateWaiter, Order
from tests.concurrency.test_gate import woken


class Line:
    """A gate of one place, which is taken, and those who wait there."""

    def __init__(self, queue: Queue, partitions: Partitions | None = None) -> None:
        self.gate = Gate(1, partitions, queue)
        self.names: dict[GateWaiter, str] = {}
        assert self.gate.enter(self.gate.rest, 0)

    def come(self, name: str, priority: int, partition: str = "") -> str:
        """Wait; return who had to leave for it, or why that is not possible."""
        waiter = GateWaiter(lambda: None, priority)
        if reason := self.gate.line_up(self.gate.partition(partition), waiter):
            return reason
        gone = woken(self.gate.serve, 0)
        self.names[waiter] = name
        assert all(each.displaced and not each.waiting for each in gone)
        return "".join(self.names.pop(each) for each in gone)

    def fill(self, all_: Iterable[tuple[str, int]]) -> None:
        for name, priority in all_:
            assert self.come(name, priority) == ""

    def served(self, many: int) -> str:
        """Return who gets the next places, each of which gets free when the one before has it."""
        return "".join(self.names.pop(self._one()) for _ in range(many))

    def _one(self) -> GateWaiter:
        (waiter,) = woken(self.gate.leave, self.gate.rest, 0)
        return waiter


@pytest.mark.parametrize(("order", "expected"), [("fifo", "CBDA"), ("lifo", "CDBA")])
def test_a_higher_priority_is_next_and_of_equal_ones_the_order_decides(order: Order, expected: str) -> None:
    line = Line(Queue(9, order=order))
    line.fill([("A", -1), ("B", 5), ("C", 6), ("D", 5)])
    assert line.served(4) == expected


@pytest.mark.parametrize("order", ["fifo", "lifo"])
def test_one_place_of_eight_goes_to_who_has_waited_longest(order: Order) -> None:
    line = Line(Queue(99, order=order))
    line.fill([("a", 0), ("b", 0), *[("H", 9)] * 30])
    assert line.served(17) == "HHHHHHHaHHHHHHHbH"


@pytest.mark.parametrize("order", ["fifo", "lifo"])
def test_priorities_hold_across_partitions_and_so_does_the_turn_of_the_oldest(order: Order) -> None:
    line = Line(Queue(99, order=order), Partitions({}, caps={"batch": 1.0}))
    assert line.come("b", 0, "batch") == ""
    line.fill([("H", 1)] * 9)
    gate, seen = line.gate, ""
    place = gate.rest
    for _ in range(9):
        (waiter,) = woken(gate.leave, place, 0)
        place, seen = waiter.partition, seen + line.names.pop(waiter)
    assert seen == "HHHHHHHbH"


@pytest.mark.parametrize(("order", "expected"), [("fifo", "c"), ("lifo", "a")])
def test_in_a_full_queue_a_higher_priority_takes_the_place_of_the_last(order: Order, expected: str) -> None:
    line = Line(Queue(4, order=order))
    line.fill([("a", 0), ("b", 1), ("c", 0), ("d", 2)])
    assert line.come("e", 1) == expected
    assert line.come("f", 0) == "queue_full"
    assert line.gate.waiting.count == 4


def test_an_eighth_of_the_queue_is_left_to_lower_priorities() -> None:
    line = Line(Queue(16))
    line.fill([(chr(ord("a") + i), 0) for i in range(16)])
    gone = [line.come("H", 9) for _ in range(20)]
    assert "".join(gone[:14]) == "ponmlkjihgfedc"
    assert gone[14:] == ["queue_full"] * 6
    assert line.served(16) == "HHHHHHHaHHHHHHHb"


def test_a_waiter_for_whom_a_share_is_kept_stays() -> None:
    line = Line(Queue(2), Partitions({"live": 1.0}, strict=True))
    assert line.come("a", 0, "live") == ""
    assert line.come("b", 0) == ""
    assert line.come("c", 1) == "b"
    assert line.come("d", 2) == "c"


def test_one_of_each_partition_is_looked_at_however_many_priorities_wait() -> None:
    line = Line(Queue(100), Partitions({"a": 0.0}, caps={"a": 0.5}))
    for priority in range(50):
        assert line.come(f"a{priority}", priority, "a") == line.come(f"b{priority}", priority) == ""
    assert [each.priority for each in line.gate.waiting.heads()] == [49, 49]
