"""The keys of one limiter in this process: which are in use, which are dormant, and what all of them did."""

import itertools
from collections.abc import Callable
from typing import Generic, TypeVar

from batchlimit.base.key import names_of, place_of
from batchlimit.keyspace.census import BaseKeyEntry, Census, Tallies
from batchlimit.keyspace.kept_keys import ClockCache, DormantKeys
from batchlimit.keyspace.spending import Spending
from batchlimit.quota.overrides.code import Code
from batchlimit.quota.overrides.known import OverridesCache
from batchlimit.quota.overrides.override import KeyRule
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.options import Instance, Options
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.statistics import Health, Statistics

E = TypeVar("E", bound=BaseKeyEntry)


class Keyspace(Generic[E]):
    """Finds, makes, evicts and lets go of the key entries of one limiter instance, and adds up their statistics.

    A key is in use (it has a key entry), dormant (a snapshot is kept), or unknown. `find` brings a key into use. Its
    entry retires when nobody uses it, or is evicted; `let_go` then makes the key dormant or unknown. A call for a key
    that is not in use may do without an entry, by `spending`.

    A keyspace waits for nothing, and is called by one at a time. A forked process is another instance: it disowns this,
    and has one of its own.
    """

    def __init__(
        self,
        entries: dict[str, E],
        options: Options,
        *,
        instance: str,
        clock: Callable[[], float],
        make: Callable[[str, Reservoir], E],
        left: Callable[[E], None],
        rules: OverridesCache,
        code: Code,
    ) -> None:
        """Begin with no key. `entries` are those in use, by the `place_of` their keys; hits read it without a keyspace.

        `make` makes the entry of a stored key around a reservoir; `left` is called with each that was let go of.
        """
        self._entries, self._options, self._clock = entries, options, clock
        self._make, self._left, self._code = make, left, code
        self._instance = Instance(instance, itertools.count(1), rules)
        self._cache = ClockCache(options.max_keys)
        self.dormant = DormantKeys(options.idle_after, options.max_keys)
        self._tallies = Tallies(code.policies)
        self.spending = Spending(
            entries, self.dormant, self._instance, options, clock=clock, tallies=self._tallies, code=code
        )

    def __repr__(self) -> str:
        return f"<Keyspace of {self._instance.name}: {len(self)} keys, {len(self.dormant)} of them dormant>"

    def __len__(self) -> int:
        """How many keys are in memory, dormant ones among them."""
        return len(self._entries) + len(self.dormant)

    def find(self, key: str, quota: Quota) -> E:
        """Return the live entry of a checked key; make one if there is none, and evict others if there is no room."""
        name, place = names_of(key)
        if (entry := self._entries.get(place)) is not None:
            if not entry.reservoir.state.is_retired:
                return entry
            self.let_go(entry)
        code, snapshot = self._code, self.dormant.take(place)
        reservoir = Reservoir(
            KeyRule(quota, code.mode(key)),
            self._instance,
            self._options,
            self._clock(),
            key=name,
            policy=code.policy(key),
            snapshot=snapshot,
            rank=code.rank,
        )
        reservoir.state.waits = self._tallies.waits(quota)
        reservoir.state.queue.last = next(self.spending.numbers)  # who asked before has a place ahead of all others
        entry = self._make(name, reservoir)
        self.dormant.make_room(len(self._entries))
        self._cache.enter(entry, self.evict)
        self._tallies.enter(entry)
        self._entries[place] = entry
        return entry

    def evict(self, entry: E) -> bool:
        """Retire this entry to make room, and let go of it; False: a caller needs it."""
        if not entry.evict():
            return False
        self.let_go(entry)
        return True

    def let_go(self, entry: E) -> None:
        """Forget an entry that has retired, once; keep its statistics, and its snapshot if it left one.

        A thread that is interrupted here does it again. So the entry is in the dict until all is done.
        """
        place = place_of(entry.key)
        if self._entries.get(place) is not entry:
            return
        self.remember(entry)
        self._cache.leave(entry)
        if (snapshot := entry.reservoir.lifecycle.snapshot) is not None:
            self.dormant.put(place, snapshot, self._clock())
        self._left(entry)
        del self._entries[place]

    def remember(self, entry: E) -> None:
        """Keep counting what an entry did that is gone, once."""
        self._tallies.leave(entry)

    def clear(self) -> list[E]:
        """Forget all keys; return the entries that were in use. The caller has each of them remembered in the end."""
        entries = list(self._entries.values())
        self._entries.clear()
        self._cache = ClockCache(self._options.max_keys)
        self.dormant.clear()
        return entries

    def disown(self) -> None:
        """Forget all keys, in a forked child: what the parent leased is the parent's; key handles may know an entry."""
        for entry in self._entries.values():
            entry.tokens.disown()
        self._entries.clear()

    def obey(self, code: Code) -> None:
        """Go by another code: keys that come into use do so from now on, and those in use when they `recode`."""
        self._code = self.spending.code = code
        self._tallies.renumber(code.policies)

    def recode(self, entry: E) -> None:
        """Have a key in use go by the code of now; requires the lock of its entry."""
        code, reservoir = self._code, entry.reservoir
        if reservoir.state.rank is code.rank or self._entries.get(place_of(entry.key)) is not entry:
            return
        rule = code.rule(entry.key)
        self._tallies.move(entry, rule.quota)
        reservoir.state.waits = self._tallies.waits(rule.quota)
        reservoir.rule.recode(rule, code.policy(entry.key), code.rank, self._clock())

    def census(self) -> Census:
        """Begin to count what all keys did, those that are gone among them; it is taken while others go on."""
        census = self._tallies.census()
        census.keys, census.asks = len(self), len(self.spending)
        return census

    @staticmethod
    def statistics(census: Census, health: Health, rules_failures: int = 0) -> Statistics:
        """Say what a census has counted."""
        admitted, refused, calls, fallback, losses, opened, held, waiting, owed, *_ = census.total
        return Statistics(
            keys=census.keys,
            admitted=admitted,
            refused=refused,
            calls=calls + census.asks,
            held=held,
            waiting=waiting + census.asks,
            owed=owed,
            fallback=fallback,
            losses=losses,
            opened=opened,
            shadow_refused=sum(each.shadow_refused for each in census.policies.values()),
            rules_failures=rules_failures,
            policies=census.policies,
            **health._asdict(),
        )
