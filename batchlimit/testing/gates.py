"""The gates of concurrency limiters while limits are off: every call passes by, and none counts."""

import weakref
from collections.abc import Callable

from batchlimit.concurrency.locked_gate import Bypass, LockedGate, living, newcomers


class Gates:
    """All gates of this process, open or as their limiters made them."""

    def __init__(self) -> None:
        self._before: weakref.WeakKeyDictionary[LockedGate, Bypass | None] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<Gates: {len(self._before)} open>"

    def open(self) -> None:
        """Let every call pass by, at gates that are made later too. Calls that wait already go on waiting."""
        newcomers[:] = [self._open]
        for gate in living:
            self._open(gate)

    def restore(self) -> None:
        """Have gates do again what they did."""
        newcomers.clear()
        for gate, bypass in list(self._before.items()):
            gate._bypass = bypass
        self._before.clear()

    def _open(self, gate: LockedGate) -> None:
        if gate not in self._before:
            self._before[gate] = gate._bypass
            gate._bypass = _everybody(weakref.ref(gate))


def _everybody(find: Callable[[], LockedGate | None]) -> Bypass:
    """Return what lets everybody pass, as long as the limiter is not closed."""

    def passes(_operation: str, _partition: str) -> bool:
        gate = find()
        return gate is not None and not gate._section.gate.is_closed

    return passes
