"""Calls of threads for keys that are not in use: they spend at the store, and no entry is made.

They are sent together: whoever finds nobody under way asks for all who came meanwhile.
"""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from batchlimit.base.blocking import OwnLock, check_recursion_depth, not_reentered, own_lock, warn_in_loop
from batchlimit.base.decision import Decision
from batchlimit.base.waiting import NO_WAIT
from batchlimit.bucket.messages import Spend, SpendReply
from batchlimit.errors import StoreUnavailable
from batchlimit.keyspace.key_spend import KeySpend, Outcome, Settled, is_charged, longest, of_each
from batchlimit.keyspace.spending import Spending
from batchlimit.quota.key import check_key
from batchlimit.quota.lookup import Constant
from batchlimit.reservoir.admission import AdmissionResult
from batchlimit.sync import key_entry, store_calls
from batchlimit.sync.guarded_store import GuardedStore
from batchlimit.sync.key_entry import KeyEntry
from batchlimit.sync.waiting_thread import WaitingThread

_MOST = 128
"""Buckets that go in one call, unless one group has more: a server takes 8 us for each, and others wait."""
_PATIENCE = 2.0
"""Seconds, beside two deadlines. A thread that leads for longer may have been interrupted, so another one leads too."""


class _Place:
    """One thread's place: it waits for another one's call, or leads; then `others` wait for it."""

    __slots__ = ("_woken", "group", "is_answered", "others", "outcome")

    def __init__(self, group: Sequence[Spend]) -> None:
        self.group, self.is_answered = group, False
        self.outcome: Outcome = None
        self.others: list[_Place] = []
        self._woken: threading.Lock | None = None  # held from when it waits until it is woken

    def line_up(self) -> None:
        """Be about to wait."""
        if self._woken is None:
            self._woken = threading.Lock()
            self._woken.acquire()

    def sleep(self, seconds: float) -> None:
        """Wait until somebody wakes it, but no longer than that."""
        assert self._woken is not None
        self._woken.acquire(timeout=seconds)

    def wake(self) -> None:
        """Requires the lock of the queue."""
        if self._woken is not None and self._woken.locked():
            self._woken.release()


class SpendQueue:
    """Sends the spends of one limiter. One call is under way at a time: its thread leads, and then the first who waits.

    A thread that comes alone asks at once, by itself. A thread that is interrupted hands on the lead, and those it led
    come again. Should even that be interrupted, the background thread does it; without one they come after a while. A
    signal handler asks by itself too: it must not wait for the call of its own thread that it has interrupted.

    An interrupt may come between any two lines: a place is put where it goes before it is taken from where it was.
    """

    def __init__(
        self, store: GuardedStore, spending: Spending[KeyEntry], finish: Callable[[Callable[[], object]], object]
    ) -> None:
        """`spending` gets the revision of the overrides; see KeyEntry for `finish`."""
        self._store, self._spending, self._finish = store, spending, finish
        self._patience = _PATIENCE + 2 * store.deadline
        self._inside: set[int] = set()  # threads; one that was interrupted may stay there, and asks by itself
        self._lock = own_lock()  # held to touch the three below
        self._waiting: OrderedDict[_Place, None] = OrderedDict()
        self._leader: _Place | None = None
        self._led_until = 0.0  # time.monotonic()

    def spend(self, group: Sequence[Spend]) -> Outcome:
        """Spend, and return what became of it."""
        me = threading.get_ident()
        if not self._store.spends_together or me in self._inside:
            return self._ask([group])[0]
        place = _Place(group)
        try:
            self._inside.add(me)
            while not self._leads(place):
                place.sleep(self._patience)
                if place.is_answered:
                    break
            else:
                self._lead(place)
            self._leave(place)
            return place.outcome
        except BaseException:
            self._finish(lambda: self._leave(place))
            self._leave(place)
            raise
        finally:
            self._inside.discard(me)

    def _leads(self, place: _Place) -> bool:
        """Whether it is this one's turn, with the first of all who wait; else it is in the queue."""
        now = time.monotonic()
        with not_reentered(self._lock):
            if self._leader is None or self._led_until <= now:
                self._leader = place
            if self._leader is not place:
                place.line_up()
                self._waiting[place] = None
                return False
            self._led_until = now + self._patience
            self._waiting.pop(place, None)
            buckets = len(place.group)
            while self._waiting and (buckets := buckets + len((first := next(iter(self._waiting))).group)) <= _MOST:
                place.others.append(first)
                del self._waiting[first]
        return True

    def _lead(self, place: _Place) -> None:
        # One that waited for long may have been answered by the leader before.
        if asked := [each for each in (place, *place.others) if not each.is_answered]:
            for each, outcome in zip(asked, self._ask([each.group for each in asked]), strict=True):
                each.outcome, each.is_answered = outcome, True

    def _leave(self, place: _Place) -> None:
        """Wake those whom it led; the first who waits leads next."""
        with not_reentered(self._lock):
            self._waiting.pop(place, None)
            for each in place.others:
                each.wake()
            if self._leader is place:
                self._leader = next(iter(self._waiting), None)
            if self._leader is not None:
                self._leader.wake()

    def _ask(self, groups: Sequence[Sequence[Spend]]) -> Sequence[Outcome]:
        try:
            reply: SpendReply = self._store.spend(groups, self._spending.looks)
        except StoreUnavailable as error:
            self._store.spends_together &= error.code != "CROSSSLOT"
            return [of_each(error, groups)] * len(groups)
        self._spending.hear(reply.rules)
        return reply.groups


class Spends:
    """Spends for the callers of one limiter; what cannot be done so is for an entry of the key."""

    def __init__(
        self,
        spending: Spending[KeyEntry],
        lock: OwnLock,
        store: GuardedStore,
        clock: Callable[[], float],
        *,
        find: Callable[[str], KeyEntry],
        check_open: Callable[[], None],
        idle: Callable[[float], None],
        finish: Callable[[Callable[[], object]], object],
    ) -> None:
        """`find` brings a key into use, or raises LimiterClosed, as `check_open` does; see KeyEntry for `finish`.

        The `lock` is held to begin and to settle. `idle` is called with the instant at which to forget a key (inf: no
        need).
        """
        self._spending, self._lock, self._store, self._clock = spending, lock, store, clock
        self._find, self._check_open, self._idle = find, check_open, idle
        self._queue = SpendQueue(store, spending, finish)

    def one(self, key: str, cost: int, until: float, priority: int = 1) -> Settled | None:
        """Settle a call at a key that is not in use; raises what went wrong. None: by its entry."""
        if (begun := self._begin({check_key(key): cost})) is None:
            return None
        outcome = self._spend(begun)
        if outcome is None:
            return None
        return begun[0] if is_charged(outcome) else self._in_vain(begun[0], outcome, until, priority)

    def all(self, costs: Mapping[str, int]) -> dict[str, Decision] | None:
        """Charge several keys, none of which is in use, or none; return what to tell. None: by their entries."""
        for key in costs:
            check_key(key)
        if (begun := self._begin(costs)) is None or not isinstance(outcome := self._spend(begun), tuple):
            return None
        if is_charged(outcome):
            return {each.key: each.decision() for each in begun}
        short = longest(begun)
        settled = self._in_vain(short, outcome, NO_WAIT)
        return None if settled is None or settled.admitted else {short.key: settled.decision(self._clock())}

    def refund(self, costs: Mapping[str, int]) -> None:
        """Take back what was charged, too late to be of use."""
        for key, cost in costs.items():
            store_calls.refund(self._find(key), cost)

    def _begin(self, costs: Mapping[str, int]) -> list[KeySpend] | None:
        """Begin to spend; None: a key needs its entry."""
        if not (self._store.spends if len(costs) == 1 else self._store.spends_together):
            return None
        if isinstance(quota := self._spending.code.quota, Constant):
            for key in costs:
                quota(key)  # without the lock: a function of the user's own, whose answer is kept
        check_recursion_depth()
        with not_reentered(self._lock):
            self._check_open()
            return self._spending.begin(costs)

    def _spend(self, begun: Sequence[KeySpend]) -> Outcome:
        """Ask the store, and take in what it says."""
        warn_in_loop()
        try:
            outcome = self._queue.spend([each.message for each in begun])
        except BaseException:
            with not_reentered(self._lock):
                self._spending.end(begun)
            raise
        with not_reentered(self._lock):
            in_time, idle_at = self._spending.settle(begun, outcome)
        if idle_at < math.inf:
            self._idle(idle_at)
        if in_time is None and is_charged(outcome):  # the caller asks again
            self.refund({each.key: each.message.cost for each in begun})
        self._check_open()  # whoever closes the limiter meanwhile fails its callers
        return in_time

    def _in_vain(self, spend: KeySpend, outcome: Outcome, until: float, priority: int = 1) -> AdmissionResult | None:
        """Have the key come into use, and its entry take in what came of the spend; None: it is in use by now."""
        entry = self._find(spend.key)
        caller = WaitingThread(entry, spend.message.cost, until, priority=priority)
        fetch = self._spending.fetch(spend)
        try:
            if not entry.locked(lambda: caller.adopt(fetch)):
                return None
            answer = outcome if isinstance(outcome, StoreUnavailable) else spend.refusal()
            key_entry.report(entry, fetch, answer)
            return caller.result()
        except StoreUnavailable:
            caller.leave()
            raise
        except BaseException:  # a Ctrl-C falls where it will: whatever was begun for this caller is ended here
            entry.finish(caller.leave)
            caller.leave()
            raise
