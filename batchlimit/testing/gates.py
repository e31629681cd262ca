"""The gates of concurrency limiters in tests: open while limits are off, or in time that stands still."""

import time
import weakref
from collections.abc import Callable
from typing import TypeVar

from batchlimit.concurrency.keyed import gates as keyed_gates
from batchlimit.concurrency.keyed.gates import KeyedGates
from batchlimit.concurrency.locked_gate import LockedGate, live_gates, on_creation
from batchlimit.testing.virtual_time import TaskTurn, ThreadTurn, VirtualTime

Timed = LockedGate | KeyedGates
Undo = Callable[[], None]
T = TypeVar("T", LockedGate, KeyedGates)
_SECOND = 1_000_000_000


class Gates:
    """All gates of this process, changed, or as their limiters made them."""

    def __init__(self) -> None:
        self._undo: weakref.WeakKeyDictionary[Timed, Undo] = weakref.WeakKeyDictionary()

    def open(self) -> None:
        """Let every call pass by, at gates that are made later too. Calls that wait already go on waiting."""
        self._change(_opened, lambda _table: lambda: None)

    def freeze(self, time: VirtualTime) -> None:
        """Have every gate that goes by the real time go by this one, and gates that are made later too."""
        self._change(lambda gate: _frozen(gate, time), lambda table: _frozen(table, time))

    def restore(self) -> None:
        """Have gates do again what they did."""
        on_creation.clear()
        keyed_gates.on_creation.clear()
        undo = list(self._undo.values())
        self._undo.clear()
        for each in undo:
            each()

    def _change(self, gates: Callable[[LockedGate], Undo], tables: Callable[[KeyedGates], Undo]) -> None:
        on_creation[:] = [lambda gate: self._one(gate, gates)]
        keyed_gates.on_creation[:] = [lambda table: self._one(table, tables)]
        for gate in live_gates:
            self._one(gate, gates)
        for table in keyed_gates.live_tables:
            self._one(table, tables)

    def _one(self, one: T, change: Callable[[T], Undo]) -> None:
        if one not in self._undo:
            self._undo[one] = change(one)


def _opened(gate: LockedGate) -> Undo:
    find, before = weakref.ref(gate), gate._bypass

    def passes(_operation: str, _partition: str) -> bool:
        """Let everybody pass, as long as the limiter is not closed."""
        gate = find()
        return gate is not None and not gate._section.gate.is_closed

    def undo() -> None:
        if (gate := find()) is not None:
            gate._bypass = before

    gate._bypass = passes
    return undo


class FrozenClock:
    """Begins at an instant (ns), and goes on as virtual time does."""

    def __init__(self, begins: int, time: VirtualTime) -> None:
        self._begins, self._time, self._since = begins, time, time.elapsed

    def __call__(self) -> int:
        """Return the time (ns)."""
        return self._begins + round((self._time.elapsed - self._since) * _SECOND)

    def thread_turn(self) -> ThreadTurn:
        """See locked_gate.OtherTime."""
        return ThreadTurn(self._time)

    def task_turn(self) -> TaskTurn:
        """See locked_gate.OtherTime."""
        return TaskTurn(self._time)


class ResumedClock:
    """The real clock, ahead of itself: a law that has learned is never told of an earlier time."""

    def __init__(self, ahead: int) -> None:
        self._ahead = ahead

    def __call__(self) -> int:
        """Return the time (ns)."""
        return time.monotonic_ns() + self._ahead


def _frozen(one: Timed, virtual: VirtualTime) -> Undo:
    if one.clock is not time.monotonic_ns and not isinstance(one.clock, FrozenClock | ResumedClock):
        return lambda: None  # it has a clock of its own
    find: Callable[[], Timed | None] = weakref.ref(one)
    clock = FrozenClock(one.clock(), virtual)

    def undo() -> None:
        if (one := find()) is not None:
            ahead = clock() - time.monotonic_ns()
            one.tell_time(ResumedClock(ahead) if ahead > 0 else time.monotonic_ns, None)

    one.tell_time(clock, clock)
    return undo
