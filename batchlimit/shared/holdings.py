"""The slots of all keys of one limiter instance, under one lock: when each is asked about, and what is counted."""

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from batchlimit.base.blocking import OwnLock
from batchlimit.base.waking import Event
from batchlimit.bucket.slot_table import SlotPush
from batchlimit.errors import ConcurrencyLimited
from batchlimit.shared.held_slots import Claim
from batchlimit.shared.local_slots import LocalSlots, refusal


@dataclass(frozen=True, slots=True)
class SharedKeyStatistics:
    """One key in this process, and as the store last told.

    Attributes:
        in_flight: Permits under way in this process.
        waiting: Callers of this process that wait.
        held: Permits that the store lends to this process.
        limit: Permits in the whole fleet.
        lent: Permits that the store lent to the whole fleet when it was last asked.
        instances: Limiter instances that held permits or waited then.

    Example:
        >>> from batchlimit.shared import SharedConcurrencyLimiter
        >>> with SharedConcurrencyLimiter.from_url("memory://", {"gpu": 1}) as limiter:
        ...     with limiter.acquire("gpu"):
        ...         limiter.statistics().keys["gpu"]
        SharedKeyStatistics(in_flight=1, waiting=0, held=1, limit=1, lent=1, instances=1)
    """

    in_flight: int
    waiting: int
    held: int
    limit: int
    lent: int
    instances: int


@dataclass(frozen=True, slots=True)
class SharedStatistics:
    """A shared concurrency limiter now, and what it counted since it was made.

    Attributes:
        keys: The keys that are in use.
        admitted: Permits that were acquired.
        refused: Callers that were refused: there was no permit in time, or the queue was full.
        lost: Permits that were lost while they were under way.
        asks: How often the store was asked.

    Example:
        >>> from batchlimit.shared import SharedConcurrencyLimiter
        >>> with SharedConcurrencyLimiter.from_url("memory://", {"gpu": 1}) as limiter:
        ...     with limiter.acquire("gpu"):
        ...         limiter.statistics().admitted
        1
    """

    keys: Mapping[str, SharedKeyStatistics]
    admitted: int
    refused: int
    lost: int
    asks: int


class Holdings:
    """What callers take from and give back to, and what the thread that asks the store looks after.

    No key has two LocalSlots. It has 12 public methods, because callers, pushes and that thread use it; those that say
    so require the lock.
    """

    __slots__ = (
        "_admitted", "_name", "_numbers", "_plan",
        "asks", "by_key", "by_name", "clock", "lock", "lost", "refused", "wake",
    )  # fmt: skip

    def __init__(self, name: Callable[[str], str], clock: Callable[[], int]) -> None:
        """`name` returns the name by which pushes tell of a key."""
        self.lock = OwnLock()  # held to touch the rest; never while a waiter is woken or the store is asked
        self.by_key: dict[str, LocalSlots] = {}
        self.by_name: dict[str, LocalSlots] = {}
        self._plan: list[tuple[float, int, LocalSlots]] = []  # a heap: when to ask about which key
        self._name, self._numbers, self.clock = name, itertools.count(), clock  # ns, which never run backwards
        self._admitted = self.refused = self.lost = self.asks = 0  # admitted: of keys that are not in use any more
        self.wake = Event()  # set when the thread that asks the store has to look sooner than it meant to

    def __iter__(self) -> Iterator[LocalSlots]:
        return iter(list(self.by_key.values()))

    def __len__(self) -> int:
        return len(self.by_key)

    def add(self, slots: LocalSlots) -> None:
        """Keep these slots until nothing is left of them. Requires the lock."""
        name = self._name(slots.key)  # first: a signal handler that raises leaves both of them, or none
        self.by_key[slots.key] = self.by_name[name] = slots

    def drop(self, slots: LocalSlots) -> bool:
        """Forget a key of which nothing is left here or at the store. Requires the lock."""
        if slots.is_over and self.by_key.get(slots.key) is slots:
            del self.by_key[slots.key], self.by_name[self._name(slots.key)]
            self._admitted += slots.admitted
        return slots.is_over

    def note(self, slots: LocalSlots, now: float) -> None:
        """Plan the next ask about a key; wake the thread if that is sooner than it meant to look. Requires the lock."""
        if slots.due >= slots.planned:
            return
        heapq.heappush(self._plan, (slots.due, next(self._numbers), slots))
        slots.planned = slots.due  # last: who is interrupted before has it looked at once too often
        if slots.due <= now or self._plan[0][2] is slots:
            self.wake.set()

    def due(self, now: float) -> list[LocalSlots]:
        """Return those about which the store is to be asked now. Requires the lock."""
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

    def statistics(self) -> SharedStatistics:
        by_key = dict[str, SharedKeyStatistics]()
        with self.lock:
            admitted = self._admitted
            for slots in self:
                last = slots.reply
                told = (last.limit, last.lent, last.instances) if last else (slots.limit, 0, 0)
                by_key[slots.key] = SharedKeyStatistics(slots.in_flight, len(slots.line), slots.held.count, *told)
                admitted += slots.admitted
            return SharedStatistics(by_key, admitted, self.refused, self.lost, self.asks)

    def refusal(self, slots: LocalSlots, reason: str) -> ConcurrencyLimited:
        """Count a caller that gets no place; return the error to raise. Requires the lock."""
        self.refused += 1
        return refusal(slots, reason)

    def change(self, key: str, change: Callable[[LocalSlots, int], object], *, is_name: bool = False) -> None:
        """Change the slots of a key, if it is in use, and wake who is ready. `is_name`: pushes call it so."""
        with self.lock:
            if (slots := (self.by_name if is_name else self.by_key).get(key)) is None:
                return
            now = self.clock()
            change(slots, now)
            self.note(slots, now)
        self.wake_all(slots)

    def hear(self, name: str, push: SlotPush) -> None:
        self.change(name, lambda slots, now: slots.hear(push, now), is_name=True)

    def left_behind(self, gone: Iterable[Claim]) -> None:
        """Finish what callers left who were interrupted: their permits are gone, or they have woken nobody."""
        with self.lock:
            by_key = {slots.key: set[Claim]() for slots in self if slots.line or slots.line.unwoken}
            for claim in gone:
                by_key.setdefault(claim.key, set()).add(claim)
        for key, claims in by_key.items():
            self.change(key, lambda slots, now, claims=claims: slots.left_behind(claims, now))  # type: ignore[misc]

    def look_at_all(self) -> None:
        """Ask about all keys where somebody waits: messages may have been lost."""
        with self.lock:
            now = self.clock()
            for slots in self:
                if slots.line:
                    slots.due = now
                    self.note(slots, now)

    def wake_all(self, slots: LocalSlots) -> None:
        """Wake who is ready; what one got whose event loop is closed goes to the next."""
        while ready := slots.line.ready:
            for waiter in ready:
                try:
                    waiter.wake()
                except RuntimeError:
                    with self.lock:
                        now = self.clock()
                        slots.give_up(waiter, now)
                        self.note(slots, now)
                slots.line.unwoken.pop(waiter, None)
