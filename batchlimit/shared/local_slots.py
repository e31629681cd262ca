"""The slots of one key that this instance holds: who gets them here, how many to ask for, and how many to give back."""

import math
from collections.abc import Callable

from batchlimit.errors import BucketUnavailable, ConcurrencyLimited, StoreUnavailable
from batchlimit.lending.messages import SlotAsk, SlotPush, SlotReply
from batchlimit.quota.failure_policy import CircuitOpen
from batchlimit.shared.fencing import FencingTokens
from batchlimit.shared.lease import Lease, Place
from batchlimit.shared.limits import Shared
from batchlimit.shared.line import Line, Waiter

_SECOND = 1_000_000_000
RENEWED = 1 / 3
"""The part of a lease after which it is renewed."""
USED = 0.9
"""The part of a lease that is used: the rest is for clocks of unlike speed, and for calls that stop slowly."""


class LocalSlots:
    """It is pure: `now` (ns) comes in, and the waiters to be woken go out.

    Attributes:
        key: The key.
        lease: The lease; another object after one was over.
        line: The waiters.
        due: When the store is to be asked next (ns; inf: not before something happens).
        planned: When the thread that asks means to look (ns); kept by it.
        last: The last reply; None: there was none.
        error: Why the last ask failed; None: it was answered.
        name: The name that this instance has at the store under this lease. No two leases of a process share one:
            what was pushed to one of them is not for another.
        admitted: Permits that were given so far.
        asked: Asks that were sent so far.
    """

    def __init__(self, key: str, shared: Shared, new_name: Callable[[], str], weight: int = 1) -> None:
        self.key, self._shared, self._new_name, self._weight = key, shared, new_name, weight
        self.line = Line(shared.queue)
        self.last: SlotReply | None = None
        self.error: StoreUnavailable | None = None
        self.due = self.planned = math.inf
        self._is_closing = False
        self.admitted = self.asked = 0
        self._answered = 0  # the number of the last ask that was answered
        self._tokens = FencingTokens()
        self._outage: dict[Place, None] = {}  # places that were given while the store was away
        self._begin()

    def _begin(self) -> None:
        self.lease, self.name = Lease(), self._new_name()
        self._granted = self._returned = 0
        self._back = 0  # slots that are free here, and go back with the next ask
        self._places: dict[Place, None] = {}
        self._keep, self._allowance, self._peak = -1, 0, 0
        self._renewal = math.inf
        self._told = 0  # how many the store was told that wait here
        self._first_ask: float = math.inf  # when the first ask was sent (ns)

    def __repr__(self) -> str:
        return f"<LocalSlots: {self.busy} of {self.held} in use, {len(self.line)} waiting>"

    @property
    def limit(self) -> int:
        """How many slots there are, as this instance was told."""
        return self._shared.limit

    @property
    def held(self) -> int:
        """How many slots this instance holds."""
        return self._granted - self._returned

    @property
    def busy(self) -> int:
        """How many permits hold one of them."""
        return len(self._places)

    @property
    def in_flight(self) -> int:
        """How many permits are under way, those of an outage too."""
        return len(self._places) + len(self._outage)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of it here or at the store."""
        return not (self._places or self._outage or self.line or self.held) and self.due == math.inf

    # Callers

    def enter(self, now: int) -> Place | None:
        """Take a slot that is free here; None: there is none for a new caller."""
        is_free = len(self._places) < self._granted - self._returned - self._back and now < self.lease.until
        return self._take() if is_free and not self.line else None

    def line_up(self, waiter: Waiter, now: int) -> None:
        """Wait; the store is asked at once, unless it knows of at least half of those who wait."""
        waiter.asks = self.asked
        others = len(self.line)
        self._told = min(self._told, others)
        self.line.add(waiter)
        if not waiter.is_patient or others + 1 >= 2 * self._told:
            self.due = now

    @property
    def is_sought(self) -> bool:
        """Whether somebody waits here whom the store's last answer could not serve: a newcomer has no chance."""
        return self._told > 0 and self.line.patient > 0 and self.line.first.asks < self._answered

    def give_up(self, waiter: Waiter, now: int) -> list[Waiter]:
        """Wait no longer; a place that the waiter got meanwhile goes to others, who are returned."""
        self.line.remove(waiter)
        if waiter.place is None:
            self.due = self.due if self.line else now
            return []
        return self.leave(waiter.place, now)

    def leave(self, place: Place, now: int) -> list[Waiter]:
        """End a permit; return the waiters that were served. A second time it changes nothing."""
        if self._outage.pop(place, place) is None:
            self.due = now if self.line else self.due
            return []
        if self._places.pop(place, place) is not None:
            return []
        if 0 <= self._keep < self.held - self._back:
            self._back += 1
        return self._settle(now)

    def _settle(self, now: int) -> list[Waiter]:
        served = self.serve(now)
        if self._surplus() > 0:
            self.due = now
        return served

    def serve(self, now: int) -> list[Waiter]:
        """Give the slots that are free here to those who wait."""
        served: list[Waiter] = []
        if now >= self.lease.until:
            return served
        while len(self._places) < self._granted - self._returned - self._back and self.line:
            waiter = self.line.next()
            waiter.place = self._take()
            served.append(waiter)
        return served

    def _take(self) -> Place:
        place = Place(self.lease, self._tokens.next())
        self._places[place] = None
        if len(self._places) > self._peak:
            self._peak = len(self._places)
        self.admitted += 1
        return place

    def _surplus(self) -> int:
        """Return how many slots are to be given back: those that others wait for, or that are too few for all."""
        idle = self._granted - self._returned - len(self._places)
        if self._keep >= 0 or self._is_closing:
            return idle
        return max(self._back, idle - self._allowance)

    # The store

    def ask(self, now: int) -> SlotAsk:
        """Return what to send now. Exactly one of `answer` and `fail` follows."""
        self._returned += self._surplus()
        self._back = 0
        if now >= self._renewal:  # nothing needed these since the last time
            self._returned += max(0, self.held - max(self._peak, self.busy + len(self.line)))
            self._peak = self.busy
        self.asked += 1
        self._first_ask = min(self._first_ask, now)
        self.due, self._told = math.inf, self.line.patient
        idle, waiting = self.held - self.busy, len(self.line)
        return SlotAsk(
            instance=self.name,
            limit=self._shared.limit,
            lease=round(self._shared.lease * 1_000_000),
            weight=self._weight,
            returned=self._returned,
            held=self.held,
            target=self.busy + max(idle, waiting),
            waiting=self.line.patient,
            extra=self.busy + waiting if waiting and self._keep < 0 else 0,
            idle=max(0, idle - waiting),
        )

    def answer(self, ask: SlotAsk, reply: SlotReply, sent: int, now: int) -> list[Waiter]:
        """Take over what the store answered to an ask that was sent then; return the waiters to be woken."""
        self.error = None
        if ask.instance != self.name:  # the lease of that ask is over
            self.due = now
            return []
        self.last = reply
        lease_ns = self._shared.lease * _SECOND
        self.lease.until = max(self.lease.until, sent + int(USED * lease_ns))
        self._learn(reply, shrink=reply.fresh)
        self._allowance = max(0, reply.limit - reply.lent + ask.idle) // (reply.instances + 1)
        self._answered = self.asked
        woken = self._settle(now) + self._refuse_impatient()
        self._renewal = sent + RENEWED * lease_ns
        if self.held or self.line:
            self.due = min(self.due, self._renewal)
        return woken

    def hear(self, push: SlotPush, now: int) -> list[Waiter]:
        """Take over what the store told without being asked; return the waiters to be woken."""
        if push.instance != self.name or push.token < self._tokens.last:
            return []
        self._learn(push, shrink=False)
        return self._settle(now)

    def look(self, now: int) -> None:
        """Ask now if somebody waits: a message may have been lost."""
        if self.line:
            self.due = now

    def fail(self, error: StoreUnavailable, retry: int, admits: float) -> list[Waiter]:
        """Note that an ask failed; return the waiters to be woken, with the error or with a place.

        One lost answer fails only those who do not wait for a release. The others wait for the next ask, until the
        circuit breaker is open or this key cannot be served.

        Args:
            error: What the waiters get.
            retry: When to ask again (ns).
            admits: How many permits may be under way without the store.
        """
        self.error = error
        self.due = min(self.due, retry)
        is_final = isinstance(error, CircuitOpen | BucketUnavailable)
        woken = [each for each in self.line if each.asks < self.asked and (is_final or not each.is_patient)]
        for waiter in woken:
            self.line.remove(waiter)
            if self.in_flight < admits:
                waiter.place = Place(Lease(math.inf), 0)
                self._outage[waiter.place] = None
                self.admitted += 1
            else:
                waiter.error = error
        return woken

    def expire(self, now: int) -> list[Place]:
        """Begin a new lease if this one is over; return the places that are lost."""
        # Of asks without an answer: what the store may have lent by them is free again after a lease.
        until = self.lease.until or (math.inf if self.line else self._first_ask + self._shared.lease * _SECOND)
        if now < until:
            return []
        lost = list(self._places)
        self._begin()
        self.due = now if self.line else math.inf
        return lost

    def forget(self) -> None:
        """Hold nothing: in a forked child."""
        self.lease.end()
        for place in self._outage:
            place.lose()

    def close(self, error: Exception, now: float) -> list[Waiter]:
        """Keep no slot without a permit from now on; return all waiters, with an error."""
        self._is_closing, self.due = True, now
        return self.line.refuse(list(self.line), error)

    def refusal(self, reason: str) -> ConcurrencyLimited:
        """Return the refusal of a caller that gets no place."""
        last = self.last
        limit, lent = (last.limit, last.lent) if last else (self._shared.limit, self.in_flight)
        return ConcurrencyLimited(reason, None, limit=limit, in_flight=lent, key=self.key)

    def _learn(self, told: SlotReply | SlotPush, shrink: bool) -> None:
        self._granted = told.granted if shrink else max(self._granted, told.granted)
        self._tokens.learn(told.token)
        self._keep = told.keep
        while len(self._places) > max(0, self.held):
            place, _ = self._places.popitem()
            place.lose()
            place.give_up()

    def _refuse_impatient(self) -> list[Waiter]:
        """Remove those that wait for no more than the first answer, which came."""
        if self.line.patient == len(self.line):
            return []
        asked = [waiter for waiter in self.line if not waiter.is_patient and waiter.asks < self.asked]
        return [each for waiter in asked for each in self.line.refuse([waiter], self.refusal("limit"))]
