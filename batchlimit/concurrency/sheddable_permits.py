"""The permits under way whose calls may be told to give up."""

import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress

from batchlimit.concurrency.critical_section import CriticalSection
from batchlimit.concurrency.permit import HELD, BasePermit
from batchlimit.concurrency.statistics import Counts


class SheddablePermits:
    """Holds the sheddable permits under way, weakly, and tells some of them to give up."""

    __slots__ = ("_counts", "_permits", "_section")

    def __init__(self, section: CriticalSection, counts: Counts) -> None:
        self._section, self._counts = section, counts
        self._permits: weakref.WeakSet[BasePermit] = weakref.WeakSet()

    def __len__(self) -> int:
        return len(self._permits)

    def excess(self) -> int:
        """Return how many more calls are under way than the limit lets, without those that were told to give up."""
        return self._section.do(self._excess)

    def _excess(self) -> int:
        gate, ending = self._section.gate, sum(each._state is HELD and each.shed for each in self._permits)
        return gate.in_flight - gate.limit - ending

    def add(self, permit: BasePermit) -> None:
        """Let a permit be shed for as long as it is held."""
        self._section.do(lambda: self._add(permit))

    def _add(self, permit: BasePermit) -> None:
        if permit._state is HELD:
            permit._told = False
            self._permits.add(permit)

    def discard(self, permit: BasePermit) -> None:
        """Let a permit be shed no longer: it is complete. Requires the lock."""
        self._permits.discard(permit)

    def shed(self, choose: Callable[[Sequence[BasePermit]], Sequence[BasePermit]]) -> None:
        """Tell the permits to give up that `choose` picks among those that were not told yet."""
        calls = self._section.do(lambda: self._not_told(self._permits))
        chosen = choose(calls)  # without the lock: its key is a function of the user
        for permit in self._section.do(lambda: self._tell(chosen)):
            with suppress(RuntimeError):  # its event loop is closed: no task is in its block any more
                permit._give_up()

    def _tell(self, chosen: Sequence[BasePermit]) -> list[BasePermit]:
        told = self._not_told(chosen)
        self._counts.shed += len(told)
        for permit in told:
            permit._told = True
        return told

    @staticmethod
    def _not_told(permits: "Sequence[BasePermit] | weakref.WeakSet[BasePermit]") -> list[BasePermit]:
        return [permit for permit in permits if permit._state is HELD and not permit.shed]

    def forget(self) -> None:
        """Hold no permits: in a forked child, those of the parent are under way elsewhere."""
        self._permits = weakref.WeakSet()
