"""The gates of a keyed concurrency limiter: one for each key that is in use."""

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from batchlimit.base.forks import Forkables
from batchlimit.base.key import limits_by_name
from batchlimit.concurrency.critical_section import CLOSED
from batchlimit.concurrency.keyed.limits import (
    Keyed,
    KeyedStatistics,
    KeyPattern,
    KeyStatistics,
    PatternStatistics,
    SharedLaw,
)
from batchlimit.concurrency.law import Law
from batchlimit.concurrency.laws.simple import Fixed
from batchlimit.concurrency.locked_gate import Changed, GateOptions, LockedGate, prepared
from batchlimit.concurrency.shedding import Shedder
from batchlimit.concurrency.statistics import ENDED, Counts, WatcherStatistics
from batchlimit.concurrency.watchers.watcher import Watcher
from batchlimit.errors import LimiterClosed, WatcherUnavailable
from batchlimit.events import log_event

_SECOND = 1_000_000_000
_LOOKS = 4
"""How many kept gates are looked at when one more is kept. So their number falls while few new keys come."""


class KnownGate(weakref.ref[LockedGate]):
    """A gate that is alive, and what outlasts it."""

    __slots__ = ("counts", "key", "pattern", "watchers")

    counts: Counts
    key: str
    pattern: KeyPattern
    watchers: tuple[Watcher, ...] | None  # of this key alone; None: there are none yet

    def statistics(self) -> PatternStatistics:
        """Return what was counted at this gate, and what is there now unless it is gone."""
        gate = self()
        seen = self.counts if gate is None else gate.statistics(())
        here = PatternStatistics()
        if not isinstance(seen, Counts):
            here = PatternStatistics(1, seen.in_flight, seen.waiting, baselines=seen.baselines)
        ended = {each: getattr(seen, each) for each in ENDED}
        return replace(here, **ended, refused=dict(seen.refused), waits=seen.waits)


class KeyedGates:
    """Finds the gate of a key, or makes it. No key ever has two gates.

    A gate is kept in `by_key` until it was not used for a while, or others need the room. It is alive as long as a
    permit is from it. For the rounds this is one watcher, which polls those of all keys and sees nothing itself. What
    it saw too late for its round counts in the next one, unless that saw other things.
    """

    name = "keys"

    def __init__(
        self, limits: Mapping[str, int | Keyed], options: GateOptions, max_keys: int, idle_after: float
    ) -> None:
        self.pattern_of = limits_by_name(
            limits,
            '{"repo:*": 20, "*": Keyed(5, queue=Queue(50))}',
            lambda name, number, given: KeyPattern(name, number, given if isinstance(given, Keyed) else Keyed(given)),
        )
        self._options, self.clock = options, options.clock
        of_keys = [each if isinstance(each, Keyed) else Keyed(each) for each in limits.values()]
        self.watches_keys = any(each.watchers for each in of_keys)
        self.sheds = options.shedding is not None or any(each.shedding for each in of_keys)
        for each in of_keys:
            if callable(each.limit) and not self._is_watched(each):
                prepared(each.limit(), options)  # what cannot work says so now, not at the first call
        self._shedder = None if options.shedding is None else Shedder(options.shedding)
        self._max_keys, self._idle_ns = max_keys, round(idle_after * _SECOND)
        self._shared: dict[KeyPattern, SharedLaw] = {}
        self.by_key: dict[str, LockedGate] = {}  # those that are kept; calls look here first, without the lock
        self._known: dict[str, KnownGate] = {}
        # Of each kept key: how many calls were over at the last look, and when that was.
        self._looks: deque[tuple[str, int, int]] = deque()
        self._gone: deque[KnownGate] = deque()
        self._past = dict.fromkeys(limits, PatternStatistics())
        self._listeners: tuple[tuple[Changed, bool], ...] = ()
        self._is_closed = self._has_failed = False  # closed; and whether a watcher of a key has failed
        self._seen: dict[str, list[str]] = {}  # by the watchers of each key
        self._lock = threading.RLock()  # the garbage collector may run anywhere, and a destructor may acquire
        live_tables.add(self)

    def __repr__(self) -> str:
        return f"<KeyedGates: {len(self._known)} keys>"

    def find(self, key: str) -> LockedGate:
        """Return the gate of a key; raises LimiterClosed, TypeError for what is no key, ValueError without a limit."""
        pattern = self.pattern_of(key)
        with self._lock:
            if self._is_closed:
                raise LimiterClosed(CLOSED)
            known = self._known.get(key)
            gate = None if known is None else known()
            if gate is None:
                gate = self._make(key, pattern)
            if key not in self.by_key:
                self.by_key[key] = gate
                self._looks.append((key, gate.counts.ended, self.clock()))
                self._make_room()
            return gate

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            alive = self._alive()
            self.by_key.clear()
            self._looks.clear()
        for _known, gate in alive:
            gate.close()

    def listen(self, changed: Changed, why: bool) -> None:
        """Call a function with the key after each change of its limit; with the reason, if it asks why."""
        with self._lock:
            self._listeners += ((changed, why),)
            alive = self._alive()
        for known, gate in alive:  # without the lock: this takes the gates' own
            gate.listen(partial(changed, known.key), why)

    def poll(self) -> None:
        """Poll the watchers of each key, making them first if there are none yet; what fails has seen nothing."""
        seen = dict[str, list[str]]()
        for known, _gate in self._alive():
            if (make := known.pattern.keyed.watchers) is None:
                continue
            try:
                if known.watchers is None:
                    known.watchers = tuple(make(known.key))
                if events := [event for each in known.watchers if (event := each.poll()) is not None]:
                    seen[known.key] = events
            except WatcherUnavailable:  # there is no such group yet
                pass
            except Exception as error:  # noqa: BLE001  of one key: the others are to be polled all the same
                level, self._has_failed = logging.DEBUG if self._has_failed else logging.WARNING, True
                message, reason = "a watcher of key %r failed, which counts as nothing seen: %r", repr(error)
                log_event("watcher.failed", message, known.key, error, level=level, watcher=self.name, reason=reason)
        self._seen = seen

    def end_period(self, events: Sequence[str]) -> None:
        """Tell all laws what their watchers saw in a period, of all keys and of one; end calls if overload lasts."""
        of_keys, self._seen = self._seen, {}
        with self._lock:
            alive, shared = self._alive(), list(self._shared.values())
        tells = [partial(law.end_period, events, self.clock()) for law in shared]
        for known, gate in alive:
            own = of_keys.get(known.key, ())
            tells.append(partial(gate.end_period, (*events, *own), own))
        if self._shedder is not None:
            tells.append(partial(self._shedder.end_period, events, *(gate for _known, gate in alive)))
        for tell in tells:  # without the lock, as above
            try:
                tell()
            except Exception as error:  # noqa: BLE001  of one law: the others are to be told all the same
                log_event("watchers.lost", "what the watchers saw was lost: %s", events, error=error, seen=events)

    def _alive(self) -> list[tuple[KnownGate, LockedGate]]:
        """Return the gates that are not gone. A destructor may add keys meanwhile."""
        with self._lock:
            return [(known, gate) for known in list(self._known.values()) if (gate := known()) is not None]

    def statistics(self, watchers: tuple[WatcherStatistics, ...]) -> KeyedStatistics:
        """Return what was counted, by pattern, with these statistics of watchers."""
        with self._lock:
            self._forget_gone()
            sums, all_known = dict(self._past), list(self._known.values())
        for known in all_known:  # without the lock: this takes the gates' own
            sums[known.pattern.name] = sums[known.pattern.name].plus(known.statistics())
        return KeyedStatistics(sums, watchers)

    def busy(self) -> list[KeyStatistics]:
        """Return the keys at which somebody is under way or waits."""
        found = list[KeyStatistics]()
        for known, gate in self._alive():
            seen, pattern = gate.statistics(()), known.pattern  # without the lock, as above
            if seen.in_flight or seen.waiting:
                now = seen.limit, seen.in_flight, seen.waiting, seen.baselines
                partitions = seen.partitions if pattern.keyed.partitions else {}
                found.append(KeyStatistics(known.key, pattern.name, *now, partitions))
        return found

    def after_fork(self) -> None:
        """Begin anew in a forked child; the gates do so by themselves."""
        self._lock = threading.RLock()
        for law in self._shared.values():
            law.after_fork()

    def tell_time(self, clock: Callable[[], int], _time: object) -> None:
        """Go by another clock from now on, which is not behind."""
        self.clock = clock

    def _make(self, key: str, pattern: KeyPattern) -> LockedGate:
        self._forget_gone()
        asked = self._options.bypass
        bypass = None if asked is None else lambda operation, _partition: asked(operation, key)
        keyed, is_watched = pattern.keyed, self._is_watched(pattern.keyed)
        own = self._options._replace(bypass=bypass, shedding=keyed.shedding, clock=self.clock, is_watched=is_watched)
        gate = LockedGate(self._law(pattern, own), keyed.partitions, keyed.queue, own, key)
        for changed, why in self._listeners:
            gate.listen(partial(changed, key), why)
        known = KnownGate(gate, self._gone.append)
        known.counts, known.key, known.pattern, known.watchers = gate.counts, key, pattern, None
        self._known[key] = known
        return gate

    def _law(self, pattern: KeyPattern, options: GateOptions) -> Law:
        keyed = pattern.keyed
        if isinstance(keyed.limit, int):
            return prepared(Fixed(keyed.limit), options)
        if (shared := self._shared.get(pattern)) is not None:
            return shared
        law = prepared(keyed.limit(), options)
        if keyed.shared:
            law = self._shared[pattern] = SharedLaw(law)
        return law

    def _is_watched(self, keyed: Keyed) -> bool:
        return bool(self._options.watchers or keyed.watchers)

    def _make_room(self) -> None:
        """Look at the gates that nobody looked at for longest; keep those that were used since, if there is room."""
        now = self.clock()
        for _ in range(_LOOKS):
            is_due = bool(self._looks) and now - self._looks[0][2] >= self._idle_ns
            if len(self.by_key) <= self._max_keys and not is_due:
                return
            key, ended, _ = self._looks.popleft()
            counts = self.by_key[key].counts
            if counts.ended != ended:
                self._looks.append((key, counts.ended, now))
            else:
                del self.by_key[key]
        if len(self.by_key) > self._max_keys:
            del self.by_key[self._looks.popleft()[0]]

    def _forget_gone(self) -> None:
        """Forget the gates that are gone; keep what they counted."""
        while self._gone:
            known = self._gone.popleft()
            name = known.pattern.name
            self._past[name] = self._past[name].plus(known.statistics())
            if self._known.get(known.key) is known:
                del self._known[known.key]


live_tables: Forkables[KeyedGates] = Forkables()
"""Every table of gates in the process."""
