"""The spends of threads, sent together: whoever finds nobody under way asks for all who came meanwhile."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from batchlimit.blocking import free, own_lock
from batchlimit.bucket.messages import Spend
from batchlimit.errors import StoreUnavailable
from batchlimit.keyspace.key_spend import Outcome
from batchlimit.sync.guarded_store import GuardedStore

_MOST = 128
"""Groups that go in one call at the most: a server takes 8 us for a bucket, and others wait."""
_LEAD: Any = object()
"""In place of an outcome: this thread is the next to ask."""


class _Place:
    """A thread that waits for another one's call."""

    __slots__ = ("group", "is_answered", "outcome", "woken")

    def __init__(self, group: Sequence[Spend]) -> None:
        self.group, self.is_answered = group, False
        self.outcome: Any = None
        self.woken = threading.Lock()
        self.woken.acquire()

    def answer(self, outcome: Any) -> None:
        self.outcome, self.is_answered = outcome, True


class SpendQueue:
    """Sends the spends of one limiter. One call is under way at a time: its thread leads, and then the first who waits.

    A thread that comes alone asks at once, by itself. One that is interrupted hands on the lead. Should even that be
    interrupted, the others take it after a while.
    """

    def __init__(self, store: GuardedStore, looks: Callable[[], bool], hear: Callable[[int], None]) -> None:
        """`looks` says whether an answer is to tell the revision of the overrides, which `hear` takes in."""
        self._store, self._looks, self._hear = store, looks, hear
        self._lock = own_lock()  # held to touch the two below
        self._waiting: deque[_Place] = deque()
        self._led_until = 0.0  # time.monotonic(); until then somebody asks

    def __repr__(self) -> str:
        return f"<SpendQueue of {self._store!r}: {len(self._waiting)} wait>"

    def spend(self, group: Sequence[Spend]) -> Outcome:
        """Spend, and return what became of it."""
        if not self._store.spends_together:
            return self._ask([group])[0]
        while True:
            if (place := self._enter(group)) is None:
                return self._lead(group)
            try:
                place.woken.acquire(timeout=self._patience)
            except BaseException:
                self._leave(place)
                raise
            if place.outcome is _LEAD:
                return self._lead(group)
            if place.is_answered:
                outcome: Outcome = place.outcome
                return outcome
            self._leave(place)  # whoever asked for it was interrupted

    @property
    def _patience(self) -> float:
        """The longest that a call takes (s)."""
        return 2.0 * self._store.deadline + self._store.connecting

    def _enter(self, group: Sequence[Spend]) -> _Place | None:
        """Return a place in the queue; None: this thread leads."""
        now = time.monotonic()
        with free(self._lock):
            if self._led_until <= now:
                self._led_until = now + self._patience
                return None
            place = _Place(group)
            self._waiting.append(place)
        return place

    def _lead(self, group: Sequence[Spend]) -> Outcome:
        places: list[_Place] = []
        try:
            with free(self._lock):
                while self._waiting and len(places) < _MOST:
                    places.append(self._waiting.popleft())
            mine, *others = self._ask([group, *(place.group for place in places)])
            for place, outcome in zip(places, others, strict=True):
                place.answer(outcome)
            return mine
        finally:
            for place in places:
                place.woken.release()
            self._hand_on()

    def _hand_on(self) -> None:
        with free(self._lock):
            self._led_until = time.monotonic() + self._patience if self._waiting else 0.0
            if self._waiting:
                place = self._waiting.popleft()
                place.outcome = _LEAD
                place.woken.release()

    def _leave(self, place: _Place) -> None:
        with free(self._lock):
            if place in self._waiting:
                self._waiting.remove(place)
        if place.outcome is _LEAD:
            self._hand_on()

    def _ask(self, groups: Sequence[Sequence[Spend]]) -> Sequence[Outcome]:
        try:
            reply = self._store.spend(groups, self._looks())
        except StoreUnavailable as error:
            return [error] * len(groups)
        self._hear(reply.rules)
        return reply.groups
