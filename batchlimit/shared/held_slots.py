"""The places that permits of one key have, under the lease of this instance; and who waits for one."""

import math
from collections.abc import Callable
from typing import Any
from weakref import ref

from batchlimit.bucket.slot_table import SlotAsk, SlotPush, SlotReply
from batchlimit.concurrency.queue import Queue, RankedWaiter, Waiting

RENEWED = 1 / 3
"""The part of a lease after which it is renewed."""
USED = 0.9
"""The part of a lease that is used: the rest is for clocks of unlike speed, and for calls that stop slowly."""


class SlotLease:
    """How long slots belong to this instance. One that is over is never renewed: a new one begins."""

    __slots__ = ("ended", "renewal", "until")

    def __init__(self, until: float = 0) -> None:
        self.until, self.renewal, self.ended = until, math.inf, False  # ns; until 0: it has not begun

    def is_over(self, now: int) -> bool:
        """Whether it has begun and is over. It stays so: an answer that comes later renews it for nobody."""
        if 0 != self.until <= now:
            self.ended = True
        return self.ended


class Claim(ref[object]):
    """A permit that may be gone, by its key. Its end calls C code alone, which no signal handler interrupts."""

    __slots__ = ("key",)
    __hash__, __eq__ = object.__hash__, object.__eq__  # also of a permit that is no more
    key: str


class Place:
    """The hold of one permit: a slot under a lease."""

    __slots__ = ("_is_lost", "claim", "holder", "lease", "token")

    def __init__(self, lease: SlotLease, token: int, claim: Claim | None = None) -> None:
        self.lease, self.token, self.claim = lease, token, claim
        self._is_lost = False
        self.holder: Callable[[], Any] | None = None  # returns the permit that has to `hurry` when this is lost

    def is_lost(self, now: int) -> bool:
        """Whether the slot may belong to somebody else by now."""
        return self._is_lost or self.lease.is_over(now)

    def lose(self) -> None:
        """Be lost, and tell the permit, from any thread: the lease is over, or the store gave the slot to others."""
        self._is_lost = True
        if self.holder is not None and (permit := self.holder()) is not None:
            permit.hurry()


SEQUENCE = 1 << 14
"""Permits are numbered within a token of the store, up to so many; later ones have the last number."""


class HeldSlots:
    """The slots under one lease, by its name, counted as the store does: all that were granted or went back. Pure."""

    __slots__ = (
        "_allowance", "_granted", "_leaving", "_most", "_sequence", "first_ask", "keep", "last", "lease", "name",
        "places", "returned",
    )  # fmt: skip

    def __init__(self, name: str, last: int = 0, sequence: int = 0) -> None:
        """The numbers of permits go on: by the store's `last` token, which grows with each ask, and within it."""
        self.name, self.lease = name, SlotLease()
        self.last, self._sequence = last, sequence
        self._granted = self.returned = 0
        self._leaving = 0  # slots that are free here, and go back with the next ask
        self.places: dict[Place, None] = {}
        self._most = 0  # how many places there were at once since the last renewal
        self.first_ask: float = math.inf  # when it was sent under this name (ns)
        self.keep, self._allowance = -1, 0  # how many may stay while others wait (-1: none do), or idle else

    @property
    def count(self) -> int:
        return self._granted - self.returned

    def has_free(self, now: int) -> bool:
        """Whether a slot is free, and the lease is not over."""
        is_free = len(self.places) < self._granted - self.returned - self._leaving
        return is_free and now < self.lease.until and not self.lease.ended

    def take(self, claim: Claim | None, waiter: "SlotWaiter | None" = None) -> Place:
        """Let a permit have a slot that is free, or a waiter of that permit."""
        self._sequence = min(self._sequence + 1, SEQUENCE - 1)
        place = Place(self.lease, self.last * SEQUENCE + self._sequence, claim)
        if waiter is not None:
            waiter.place = place
        self.places[place] = None  # no call since the line above: a signal handler that raises finds both done, or none
        self._most = max(self._most, len(self.places))
        return place

    def end(self, place: Place) -> bool:
        if self.places.pop(place, place) is not None:
            return False
        place.claim = None
        if 0 <= self.keep < self.count - self._leaving:
            self._leaving += 1
        return True

    def surplus(self, is_closing: bool) -> int:
        """Return how many slots are to be given back: those that others wait for, or that are too few for all."""
        idle = self._granted - self.returned - len(self.places)
        if self.keep >= 0 or is_closing:
            return idle
        return max(self._leaving, idle - self._allowance)

    def give_back(self, now: int, is_closing: bool) -> None:
        """Give back the surplus; at a renewal, also what nothing needed since the last one."""
        self.returned += self.surplus(is_closing)
        self._leaving = 0
        if now >= self.lease.renewal:
            self.returned += max(0, self.count - self._most)  # while one is free here, nobody waits for it
            self._most = len(self.places)

    def renew(self, ask: SlotAsk, reply: SlotReply, sent: int) -> None:
        """Take over what the store answered to an ask that was sent then (ns)."""
        length = ask.lease * 1000  # ns
        self.lease.until, self.lease.renewal = sent + int(USED * length), sent + RENEWED * length
        self._allowance = max(0, reply.limit - reply.lent + ask.idle) // (reply.instances + 1)
        self._granted = reply.granted if reply.fresh else max(self._granted, reply.granted)
        self._learn(reply)

    def hear(self, push: SlotPush) -> bool:
        """Take over what the store told without being asked; return whether it is for this lease."""
        if push.instance != self.name or push.token < self.last:
            return False
        self._granted = max(self._granted, push.granted)
        self._learn(push)
        return True

    def _learn(self, told: SlotReply | SlotPush) -> None:
        if told.token > self.last:
            self.last, self._sequence = told.token, 0
        self.keep = told.keep
        while len(self.places) > max(0, self.count):
            place, _ = self.places.popitem()
            place.lose()
        self._leaving = min(self._leaving, self.count - len(self.places))  # what the store forgot does not go back


class SlotWaiter(RankedWaiter):
    """A caller that waits: it gets a place, or an error, or gives up; whichever comes first is final."""

    __slots__ = ("asks", "claim", "error", "is_patient", "place")

    asks: int  # that were sent when it came, for only a later one concerns it

    def __init__(self, wake: Callable[[], object], is_patient: bool, priority: int, claim: Claim | None) -> None:
        super().__init__(wake, priority)
        self.is_patient, self.claim = is_patient, claim  # waits for a release; else for the store's first answer alone
        self.place: Place | None = None
        self.error: Exception | None = None


class Line(Waiting[SlotWaiter]):
    """All who wait for one key."""

    __slots__ = ("_hasty", "unwoken")

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue)
        self._hasty: set[SlotWaiter] = set()
        self.unwoken: dict[SlotWaiter, None] = {}  # about to get what ends their wait, until somebody wakes them

    @property
    def patient(self) -> int:
        return len(self) - len(self._hasty)

    def add(self, waiter: SlotWaiter) -> None:
        super().add(waiter)
        if not waiter.is_patient:
            self._hasty.add(waiter)

    def remove(self, waiter: SlotWaiter) -> None:
        self._hasty.discard(waiter)
        super().remove(waiter)

    @property
    def ready(self) -> list[SlotWaiter]:
        """Those to wake now. A call that was interrupted may have left others in `unwoken`, who got nothing."""
        return [waiter for waiter in list(self.unwoken) if waiter.place or waiter.error]

    def refuse(self, waiter: SlotWaiter, error: Exception) -> None:
        """Remove one, with an error."""
        self.unwoken[waiter] = None
        waiter.error = error
        self.remove(waiter)

    def next(self) -> SlotWaiter:
        """Return the one to serve next, which is leaving."""
        waiter = self.heads()[0]
        self.pass_turn()
        self.unwoken[waiter] = None
        return waiter
