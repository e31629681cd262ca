"""What each key gets: a limit over the fleet, and its slots in this process, of which some are asked of the store."""

import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass

from batchlimit.base.key import limits_by_name
from batchlimit.base.setting import between, of_kind, whole
from batchlimit.bucket.slot_table import SlotAsk, SlotPush, SlotReply
from batchlimit.concurrency.queue import Queue
from batchlimit.errors import ConcurrencyLimited, StoreUnavailable
from batchlimit.shared.held_slots import Claim, HeldSlots, Line, Place, SlotLease, SlotWaiter

_SECOND = 1_000_000_000
PATIENT = Queue(1000, max_wait=None)
"""The queue of a limit that names none: `timeout=` alone says how long a caller waits."""


@dataclass(frozen=True, slots=True)
class Shared:
    """The limit of each key that a pattern names, over the whole fleet.

    Args:
        limit: How many permits of one key may be held at once (whole number, at least 1).
        queue: Where callers of this process wait (default: 1000 at most, as long as their `timeout` says).
        lease: How long the store keeps the permits of a process that died (seconds, default 10.0; 0.1 to 3600). A
            process that cannot reach the store loses its permits after nine tenths of that.

    Raises:
        TypeError: `limit` is no whole number, `queue` no Queue, or `lease` no number.
        ValueError: `limit` or `lease` is out of its range.

    Example:
        >>> from batchlimit.shared import Shared, SharedConcurrencyLimiter
        >>> limits = {"export:*": Shared(10, lease=30.0), "gpu": 64}
        >>> with SharedConcurrencyLimiter.from_url("memory://", limits) as limiter:
        ...     with limiter.acquire("export:42"):
        ...         print("at most ten of export:42 in the fleet")
        at most ten of export:42 in the fleet
    """

    limit: int
    queue: Queue = PATIENT
    lease: float = 10.0

    def __post_init__(self) -> None:
        whole("limit (calls)", self.limit, most=1_000_000_000)
        of_kind("queue", self.queue, Queue, "like Queue(100)")
        between("lease (seconds)", self.lease, 0.1, 3600.0, "[]")


def limits_of(limits: Mapping[str, int | Shared]) -> Callable[[str], Shared]:
    """Return the function from a checked key to its limit, which raises ValueError for a key without one."""
    return limits_by_name(
        limits,
        '{"export:*": 10, "gpu": 64}',
        lambda _name, _number, given: given if isinstance(given, Shared) else Shared(given),
    )


class LocalSlots:
    """It is pure: `now` (ns) comes in. After a call the line says by `ready` whom to wake.

    It has 11 public methods: five for callers, four for the store, and two for the end of a lease or of all.
    """

    def __init__(self, key: str, shared: Shared, new_name: Callable[[], str], weight: int) -> None:
        self.key, self._shared, self._new_name, self._weight = key, shared, new_name, weight
        self.limit = shared.limit  # as this instance was told
        self.line = Line(shared.queue)
        # Places without a slot, of which nothing is promised; their lease is over in a forked child alone.
        self.outage, self.outage_lease = dict[Place, None](), SlotLease(math.inf)
        self.held = HeldSlots(new_name())
        self.reply: SlotReply | None = None  # to the last ask that was answered
        self.error: StoreUnavailable | None = None  # of the last ask.
        self.sent = self._answered = 0  # the numbers of the last ask and of the last one answered.
        self._told = 0  # how many the store was told that wait here
        self.due = self.planned = math.inf  # when to ask the store next (ns), and when the thread that asks means to
        self._is_closing = False
        self.admitted = 0

    @property
    def in_flight(self) -> int:
        """How many permits are under way, those of an outage too."""
        return len(self.held.places) + len(self.outage)

    @property
    def is_in_vain(self) -> bool:
        """Whether somebody waits whom the last answer could not serve: a newcomer has no chance."""
        return self.line.patient > 0 and self.line.oldest().asks < self._answered

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of it here or at the store."""
        return not (self.in_flight or self.line or self.held.count) and self.due == math.inf

    # Callers

    def enter(self, now: int, claim: Claim | None = None) -> Place | None:
        """Take a slot that is free here for a permit; None: there is none for a new caller."""
        if self.line or not self.held.has_free(now):
            return None
        self.admitted += 1
        return self.held.take(claim)

    def line_up(self, waiter: SlotWaiter, now: int) -> None:
        """Wait; the store is asked at once, unless it knows of more than half of those who wait."""
        waiter.asks = self.sent
        self._told = min(self._told, len(self.line))
        self.line.add(waiter)
        if not waiter.is_patient or len(self.line) >= 2 * self._told:
            self.due = now

    def give_up(self, waiter: SlotWaiter, now: int) -> None:
        """Wait no longer; a place that the waiter got meanwhile goes to others."""
        self.line.remove(waiter)
        if waiter.place is not None:
            self.leave(waiter.place, now)
        elif not self.line:
            self.due = now

    def leave(self, place: Place, now: int) -> None:
        """End a permit. A second time it changes nothing."""
        if self.held.end(place):
            self._settle(now)
        elif self.outage.pop(place, place) is None:
            place.claim = None
            self.due = now if self.line else self.due

    def _settle(self, now: int) -> None:
        """Give the slots that are free here to those who wait, and the surplus back."""
        while self.line and self.held.has_free(now):
            waiter = self.line.next()
            if waiter.place is None:  # else it has one since a call that was interrupted
                self.held.take(waiter.claim, waiter)
            self.line.remove(waiter)
            self.admitted += 1
        if self.held.surplus(self._is_closing) > 0:
            self.due = now

    def left_behind(self, gone: Set[Claim], now: int) -> None:
        """Finish what calls that were interrupted left: of these permits, which are gone, and of who was not woken."""
        self.line.unwoken = dict.fromkeys(self.line.ready)
        for waiter in self.line.unwoken:
            self.line.remove(waiter)
        for waiter in [each for each in self.line if each.claim in gone]:  # first: what ends below is for others
            self.give_up(waiter, now)
        for place in [each for each in (*self.held.places, *self.outage) if each.claim in gone]:
            self.leave(place, now)
        self._settle(now)

    def close(self, error: Exception, now: float) -> None:
        """Keep no slot without a permit from now on, and let nobody wait."""
        self._is_closing, self.due = True, now
        for waiter in self.line:
            self.line.refuse(waiter, error)

    # The store

    def ask(self, now: int) -> SlotAsk:
        """Return what to send now. Exactly one of `answer` and `fail` follows."""
        self.held.give_back(now, self._is_closing)
        self.held.first_ask = min(self.held.first_ask, now)
        self.sent += 1
        self._told = self.line.patient
        self.due = math.inf
        held, busy, waiting = self.held, len(self.held.places), len(self.line)
        idle = held.count - busy
        return SlotAsk(
            instance=held.name,
            limit=self.limit,
            lease=round(self._shared.lease * 1_000_000),
            weight=self._weight,
            returned=held.returned,
            held=held.count,
            target=busy + max(idle, waiting),
            waiting=self.line.patient,
            extra=busy + waiting if waiting and held.keep < 0 else 0,
            idle=max(0, idle - waiting),
        )

    def answer(self, ask: SlotAsk, reply: SlotReply, sent: int, now: int) -> None:
        """Take over what the store answered to an ask that was sent then."""
        self.error = None
        if ask.instance != self.held.name or self.held.lease.is_over(now):  # the lease of that ask is over
            self.due = now
            return
        self.reply, self._answered = reply, self.sent
        self.held.renew(ask, reply, sent)
        self._settle(now)
        if self.line.patient < len(self.line):  # some wait for no more than the first answer, which came
            for waiter in [each for each in self._concerned() if not each.is_patient]:
                self.line.refuse(waiter, refusal(self, "limit"))
        if self.held.count or self.line:
            self.due = min(self.due, self.held.lease.renewal)

    def hear(self, push: SlotPush, now: int) -> None:
        if self.held.hear(push):
            self._settle(now)

    def fail(self, error: StoreUnavailable, retry: int, admits: float) -> None:
        """Note that an ask failed: who waited for it gets the error, or one of so many permits.

        One lost answer fails only those who do not wait for a release. The others wait for the next ask, until the
        circuit breaker is open or this key cannot be served.
        """
        self.error = error
        self.due = min(self.due, retry)
        for waiter in [each for each in self._concerned() if error._is_final or not each.is_patient]:
            if self.in_flight < admits:
                self.line.unwoken[waiter] = None
                waiter.place = place = Place(self.outage_lease, 0, waiter.claim)
                self.outage[place] = None
                self.line.remove(waiter)
                self.admitted += 1
            else:
                self.line.refuse(waiter, error)

    def _concerned(self) -> list[SlotWaiter]:
        """Return those who waited already when the last ask was sent."""
        return [waiter for waiter in self.line if waiter.asks < self.sent]

    def expire(self, now: int) -> list[Place]:
        """Begin a new lease if this one is over; return the places that are lost."""
        lease = self.held.lease
        # Of asks without an answer: what the store may have lent by them is free again after a lease.
        unanswered = not self.line and now >= self.held.first_ask + self._shared.lease * _SECOND
        if not (lease.is_over(now) if lease.until else unanswered):
            return []
        lost = list(self.held.places)
        self.held = HeldSlots(self._new_name(), self.held.last, self.held._sequence)
        self.due = now if self.line else math.inf
        return lost


def forget(slots: LocalSlots) -> None:
    """Hold nothing: in a forked child."""
    slots.held.lease.ended = slots.outage_lease.ended = True


def refusal(slots: LocalSlots, reason: str) -> ConcurrencyLimited:
    """Return the refusal of a caller that gets no place."""
    last = slots.reply
    limit, lent = (last.limit, last.lent) if last else (slots.limit, slots.in_flight)
    return ConcurrencyLimited(reason, None, limit=limit, in_flight=lent, key=slots.key)
