"""One key's reservoir under its lock, and how a thread waits at it."""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from random import uniform
from threading import get_ident
from typing import TypeVar

from batchlimit.blocking import Event, warn_in_loop
from batchlimit.bucket.messages import GiveBack, Grant
from batchlimit.decision import Decision
from batchlimit.errors import StoreUnavailable
from batchlimit.redaction import shown
from batchlimit.reentry import AMID, free, own_lock
from batchlimit.reservoir import express
from batchlimit.reservoir.admission_result import AdmissionResult
from batchlimit.reservoir.failure_policy import CircuitOpen
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.statistics import KeyStatistics
from batchlimit.reservoir.waiter import RETIRED, Admit, Fail, Fetch, Refuse, Retired, Verdict, Wait, Waiter
from batchlimit.stores.timeouts import MANY
from batchlimit.sync.guarded_store import GuardedStore
from batchlimit.waiting import NO_WAIT

T = TypeVar("T")
_logger = logging.getLogger("batchlimit")
HEARTBEAT = 1.0
"""A waiter looks again after so many seconds though nobody woke it: whoever should have may have been interrupted."""
_LOOK = 60.0
"""The background thread looks at a key entry after so many seconds at the latest, so that its plans do not pile up."""
TOGETHER = 32
"""Asks that leave in one write, at the most: a server takes 3 ms for so many, and as long each of those keys waits."""
_LOST = 1.0
"""A plan that is overdue for so many seconds is made anew: whoever should have told the thread was interrupted."""


class KeyEntry:
    """Where the threads that want one key's tokens meet; `due` is when the background thread looks after it next."""

    __slots__ = (
        "_asker",
        "_clock",
        "_errand",
        "_refill_gate",
        "_store",
        "_watch",
        "due",
        "key",
        "lock",
        "reservoir",
        "seen",
        "tokens",
    )  # fmt: skip

    def __init__(
        self,
        key: str,
        reservoir: Reservoir,
        store: GuardedStore,
        clock: Callable[[], float],
        watch: Callable[["KeyEntry"], None],
    ) -> None:
        self.key = key
        self.reservoir = reservoir
        self.tokens = reservoir.tokens  # one look less for every hit
        self.due = math.inf
        self.seen = 0  # see Ring
        self.lock = own_lock()  # held to touch the reservoir, never while the store is asked or a thread sleeps
        self._store = store
        self._clock = clock
        self._errand: object = None  # what is sent to the store, or is about to be
        self._asker = 0  # by which thread; 0 for nothing
        self._refill_gate: threading.Lock | None = None  # is there while fetches bring many tokens
        self._watch = watch

    def __repr__(self) -> str:
        return f"<KeyEntry {shown(self.key)}: {self.reservoir}>"

    def took_late(self, cost: int) -> None:
        """Uncount tokens that were taken too late to be spent."""
        with free(self.lock):
            self.tokens.took_late(cost)

    def is_denied(self, cost: int) -> bool:
        """Refuse from memory, and have whoever comes after see it; by the lock: tokens on their way look like none."""
        return self.locked(lambda: self.reservoir.admission.deny(cost, self._clock()))

    def enter_turnstile(self) -> "threading.Lock | None":
        """Wait for one's turn to find the key dry, and to fetch; to be released. None: nobody waits for that here.

        Where a fetch brings many tokens, one thread fetches, and the others find them there, one after the other. In
        line each had to be woken, to be served one token: with 64 threads and a batch of 1,000 that took three times
        as long as all the rest.
        """
        if (refill_gate := self._refill_gate) is None:
            return None
        warn_in_loop()
        if refill_gate.acquire(timeout=self._store.brief):
            return refill_gate
        if self._refill_gate is refill_gate:  # who was in it was interrupted at the wrong moment, or the store is away
            self._refill_gate = None
        return None

    def figures(self) -> KeyStatistics:
        """Return the reservoir's figures at one moment."""
        with free(self.lock):
            return self.reservoir.statistics

    def take(self, cost: int) -> float:
        """Spend tokens that are here, if nobody is in line for them; return until when that counts, or NOW: not."""
        with free(self.lock):
            before = self.tokens.take(cost)
        if before == NO_WAIT and self.tokens.low_watermark:
            before = self.locked(lambda: self.reservoir.prefetch.take_low(cost))
        if self._clock() < before:
            return before
        if before != NO_WAIT:
            self.took_late(cost)
        return NO_WAIT

    def settle(self, cost: int, deadline: float) -> AdmissionResult | None:
        """Admit a call from memory, or wait in line until there is a verdict; raises what went wrong.

        None: the key entry has retired, and another one stands for the key.
        """
        if self.reservoir.is_retired:
            return None
        if (before := self.take(cost)) != NO_WAIT:
            return AdmissionResult(Admit(before), waited=False, asked=False, reservoir=self.reservoir)
        return self.miss(cost, deadline)

    def miss(self, cost: int, deadline: float) -> AdmissionResult | None:
        """As `settle`, for who found nothing in memory."""
        event = Event()
        waiter = Waiter(cost, deadline, event)
        try:
            verdict, waited = self._stand(waiter, event)
            if isinstance(verdict, Retired):
                return None
            return AdmissionResult(verdict, waited, waiter.asked > 0, self.reservoir)
        except BaseException:  # a Ctrl-C falls where it will: whatever was begun for this caller is ended here
            self.leave(waiter)
            raise

    def hold(self, waiter: Waiter, event: Event) -> bool:
        """Wait in line with a tentative waiter, and then confirm it or leave, whatever happens. False: retired."""
        verdict, _ = self._stand(waiter, event)
        return not isinstance(verdict, Retired)

    def begin(self, waiter: Waiter) -> Fetch | None:
        """Put a waiter in line whom nobody is before, and return what to ask for it; None: it is not there.

        To be followed by `ask_together`, and by `finish` or `leave`, whatever happens.
        """
        with free(self.lock):
            return self._ask_alone(waiter)

    def finish(self, waiter: Waiter, event: Event, waited: bool = True) -> tuple[Admit | Refuse | Retired, bool]:
        """Wait for a waiter's verdict; return it, and whether that took waiting. Raises what went wrong."""
        verdict, waited = self._walk(waiter, event, waited)
        if isinstance(verdict, Fail):
            raise verdict.to_raise(self.key)
        return verdict, waited

    def confirm(self, waiter: Waiter) -> None:
        """Spend what a waiter holds."""
        self.locked(lambda: self.reservoir.admission.confirm(waiter))

    def leave(self, waiter: Waiter) -> None:
        """Take a waiter out of line; what it was given is for others."""
        self.locked(lambda: self.reservoir.leave(waiter, self._clock()))

    def _stand(self, waiter: Waiter, event: Event) -> tuple[Admit | Refuse | Retired, bool]:
        """Stand in line until there is a verdict; return it, and whether that took waiting.

        To be followed by `leave` when it is interrupted.
        """
        warn_in_loop()
        with free(self.lock):
            if self.reservoir.is_retired:
                return RETIRED, False
            if (fetch := self._ask_alone(waiter)) is None:
                self.reservoir.admission.join(waiter)
        if fetch is not None:
            self.fetch(fetch, waiter)
        return self.finish(waiter, event, fetch is not None)

    def _ask_alone(self, waiter: Waiter) -> Fetch | None:
        """Requires the lock. Put a waiter in line whom nobody is before, and return what to ask for it."""
        if (fetch := express.ask(self.reservoir, waiter, self._clock())) is not None:
            self._note_asker()
        return fetch

    def _walk(self, waiter: Waiter, event: Event, waited: bool) -> tuple[Verdict, bool]:
        asked = waited
        while True:
            # As a step would say; but whom somebody served who was interrupted amid it, only a step takes out of line.
            if asked and isinstance(waiter.verdict, Admit) and self._clock() < waiter.verdict.before:
                return waiter.verdict, waited
            asked = False
            match self.step(waiter):
                case Admit(before) as verdict:
                    if self._clock() < before:
                        return verdict, waited
                case Refuse() | Fail() | Retired() as verdict:
                    return verdict, waited
                case Wait(seconds):
                    if self._waits_for_itself:
                        raise RuntimeError(AMID)
                    waited = True
                    event.wait(HEARTBEAT if seconds is None else min(seconds, HEARTBEAT))
                case Fetch() as fetch:
                    waited = asked = True
                    self.fetch(fetch, waiter)

    def enter(self, waiter: Waiter) -> bool:
        """Put a waiter in line, to be followed by `leave` whatever happens; False: the key entry has retired."""
        with free(self.lock):
            if not self.reservoir.is_retired:
                self.reservoir.admission.join(waiter)
            return not self.reservoir.is_retired

    def step(self, waiter: Waiter) -> Verdict | Wait | Fetch:
        """Say what the caller with this waiter does next."""
        return self.locked(lambda: self.reservoir.step(waiter, self._clock()))

    def lose(self, fetch: Fetch) -> None:
        """Take note that nobody asks this after all."""
        self.locked(lambda: self.reservoir.failed(fetch, None, self._clock()))

    def fetch(self, fetch: Fetch, waiter: Waiter | None = None) -> None:
        """Ask the store and report back, whatever happens; the waiter is the caller's."""
        outcome: Grant | StoreUnavailable
        try:
            outcome = self._store.take(self.key, fetch.quota, fetch.ask)
        except StoreUnavailable as error:
            outcome = error
        except BaseException:
            self.lose(fetch)
            raise
        self.report(fetch, outcome, waiter)

    def hand_over(self) -> None:
        """Have another thread than this one do what it was told to send to the store."""
        self._asker = 0

    def _note_asker(self) -> None:
        """Requires the lock. Know which thread is to send what has just begun to be under way."""
        if (sent := self.reservoir.in_flight) is not self._errand:
            self._errand, self._asker = sent, 0 if sent is None else get_ident()

    @property
    def _waits_for_itself(self) -> bool:
        """Whether what is under way is this thread's own: who would wait for it has interrupted it."""
        return self._asker == get_ident() and self.reservoir.in_flight is self._errand is not None

    def report(self, fetch: Fetch, outcome: Grant | StoreUnavailable, waiter: Waiter | None = None) -> None:
        """Take in what became of an ask; the waiter is the one of who asked."""
        if isinstance(outcome, StoreUnavailable):
            self.locked(lambda: self.reservoir.failed(fetch, outcome, self._clock()))
            return
        is_for_many = outcome.granted >= MANY and self._clock() - fetch.sent < self._store.brief
        if waiter is None or not self._serve_alone(waiter, fetch, outcome):
            self.locked(lambda: self.reservoir.granted(fetch, outcome, self._clock(), uniform(0.75, 1.25)))
        self._refill_gate = (self._refill_gate or threading.Lock()) if is_for_many else None

    def _serve_alone(self, waiter: Waiter, fetch: Fetch, grant: Grant) -> bool:
        """Take in an answer for a waiter that is alone in line; False: somebody joined it, or that is not all."""
        with free(self.lock):
            if not express.serve(self.reservoir, waiter, fetch, grant, self._clock(), uniform(0.75, 1.25)):
                return False
            self._note_asker()
            sooner = self._look_sooner()
        if sooner:
            self._watch(self)
        return True

    def tend(self) -> Fetch | GiveBack | None:
        """Ask the reservoir what there is to do; by then it is planned when to come again."""

        def look() -> Fetch | GiveBack | None:
            self.due = math.inf
            return self.reservoir.tend(self._clock())

        return self.locked(look)

    def refund(self, cost: int) -> bool:
        """Take back tokens that were admitted and not used; at most one round trip. False: retired."""
        waiter = Waiter(cost, NO_WAIT, Event())

        def take_back() -> tuple[bool, GiveBack | None]:
            if self.reservoir.is_retired:
                return False, None
            return True, self.reservoir.refund(waiter, self._clock())

        is_live, failed = True, None
        try:
            is_live, back = self.locked(take_back)
            if back is not None:
                self.give_back(back)
        except BaseException as error:
            self.locked(lambda: self.reservoir.leave(waiter, self._clock()))
            if not isinstance(error, StoreUnavailable):
                raise
            failed = Fail(error)
        if failed is not None and self.reservoir.fallback.fails_closed:
            raise failed.to_raise(self.key)
        return is_live

    def outlook(self) -> Decision | None:
        """Say how the next call would fare without the store; None: it would fail."""
        return self.locked(lambda: self.reservoir.forecast.outlook(self._clock()))

    @property
    def uses(self) -> int:
        """See LeasedTokens.uses."""
        return self.tokens.uses

    def evict(self) -> bool:
        """Retire to make room, unless somebody needs this key entry; it is never looked after again."""
        if self.lock._is_owned():  # whoever we interrupted is amid a change of it
            return False
        with self.lock:
            if not self.reservoir.lifecycle.evict():
                return False
            self.due = math.inf
            return True

    def debit(self, cost: int) -> bool:
        """Charge tokens that were used already; who comes then waits behind what is not there yet. False: retired."""

        def charge() -> bool:
            if not self.reservoir.is_retired:
                self.reservoir.debit(cost, self._clock())
            return not self.reservoir.is_retired

        return self.locked(charge)

    def give_back(self, back: GiveBack) -> None:
        """Return tokens, once; if the store does not take them they expire there."""
        unsent = None
        try:
            self._store.give_back(self.key, self.reservoir.quota, back)
        except CircuitOpen:
            unsent = back
        finally:
            self.locked(lambda: self.reservoir.gave_back(self._clock(), unsent))

    def close(self, error: Exception) -> threading.Event | None:
        """Fail whoever waits; to be followed by `empty`, with the event that says when what is under way has ended."""
        ended = threading.Event()
        closer = Waiter(0, NO_WAIT, ended)
        return ended if self.locked(lambda: self.reservoir.lifecycle.close(error, closer)) else None

    def empty(self, ended: threading.Event | None, deadline: float) -> bool:
        """Return all tokens of a closed key entry, after what is under way has ended; False: the store is away."""
        if ended is not None and not self._waits_for_itself:
            ended.wait(max(0.0, deadline - time.monotonic()))
        try:
            if (fetch := self.locked(lambda: self.reservoir.lifecycle.last_ask(self._clock()))) is not None:
                self.fetch(fetch)
            if (back := self.locked(self.reservoir.lifecycle.drain)) is not None:
                self.give_back(back)
        except StoreUnavailable as error:
            _logger.debug("tokens of %s were not given back; they will expire: %s", shown(self.key), error)
            return False
        return True

    def plan(self) -> None:
        """Have the background thread come when there will be something to do, and callers see what there is now."""
        self.locked(lambda: None)

    def locked(self, change: Callable[[], T]) -> T:
        """Change the reservoir under the lock; then, without it, wake whom that concerns."""
        with free(self.lock):
            result = change()
            self._note_asker()
            awake = self.reservoir.to_wake()
            sooner = self._look_sooner()
        for waiter in awake:
            waiter.event.set()
        if sooner:
            self._watch(self)
        return result

    def _look_sooner(self) -> bool:
        """Requires the lock. Whether the background thread must come earlier than it planned."""
        due, now = self.reservoir.due(), self._clock()
        if max(due, now) >= self.due > now - _LOST:  # that one is no later than _LOOK from now
            return False
        self.due = min(max(due, now), now + _LOOK)
        return True


def ask_together(store: GuardedStore, asks: Sequence[tuple[KeyEntry, Fetch, Waiter | None]]) -> None:
    """Ask a store that is pipelined for all of them in one round trip, and report each, whatever happens."""
    try:
        outcomes = store.take_many([(entry.key, fetch.quota, fetch.ask) for entry, fetch, _ in asks])
    except BaseException:
        for entry, fetch, _ in asks:
            entry.lose(fetch)
        raise
    for (entry, fetch, waiter), outcome in zip(asks, outcomes, strict=True):
        entry.report(fetch, outcome, waiter)
