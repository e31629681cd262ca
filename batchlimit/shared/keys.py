"""The keys of one limiter instance that are in use, and when the store is to be asked about each."""

import heapq
import itertools
import math
from collections.abc import Callable, Iterator

from batchlimit.shared.local_slots import LocalSlots


class Keys:
    """Finds the slots of a key; no key has two. Every method requires the lock of the engine.

    Attributes:
        by_key: The slots by their key.
        by_name: The slots by the name that pushes tell of.
    """

    __slots__ = ("_name", "_numbers", "_plan", "by_key", "by_name")

    def __init__(self, name: Callable[[str], str]) -> None:
        """`name` returns the name by which pushes tell of a key."""
        self._name = name
        self._numbers = itertools.count()
        self.by_key: dict[str, LocalSlots] = {}
        self.by_name: dict[str, LocalSlots] = {}
        self._plan: list[tuple[float, int, LocalSlots]] = []  # a heap: when to ask about which key

    def __repr__(self) -> str:
        return f"<Keys: {len(self.by_key)}>"

    def __iter__(self) -> Iterator[LocalSlots]:
        return iter(list(self.by_key.values()))

    def __len__(self) -> int:
        return len(self.by_key)

    def add(self, slots: LocalSlots) -> None:
        """Keep these slots until nothing is left of them."""
        name = self._name(slots.key)  # first: a signal handler that raises leaves both of them, or none
        self.by_key[slots.key] = self.by_name[name] = slots

    def drop(self, slots: LocalSlots) -> bool:
        """Forget slots of which nothing is left, here or at the store; return whether they were kept until now."""
        if self.by_key.get(slots.key) is not slots:
            return False
        del self.by_key[slots.key], self.by_name[self._name(slots.key)]
        return True

    def note(self, slots: LocalSlots, now: float) -> bool:
        """Plan the next ask about a key; return whether the thread that asks has to look sooner than it meant to."""
        if slots.due >= slots.planned:
            return False
        heapq.heappush(self._plan, (slots.due, next(self._numbers), slots))
        slots.planned = slots.due  # last: who is interrupted before has it looked at once too often
        return slots.due <= now or self._plan[0][2] is slots

    def due(self, now: float) -> list[LocalSlots]:
        """Return those about which the store is to be asked now."""
        due: dict[LocalSlots, None] = {}
        while self._plan and self._plan[0][0] <= now:
            planned, _, slots = heapq.heappop(self._plan)
            if slots.due <= now:
                slots.planned = math.inf
                due[slots] = None
            elif planned == slots.planned:  # an ask came first
                slots.planned = math.inf
                self.note(slots, now)
        return list(due)

    def next(self) -> float:
        """Return when the store is to be asked next (ns; inf: not before something happens)."""
        return self._plan[0][0] if self._plan else math.inf
