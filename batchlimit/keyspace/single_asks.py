"""The single asks of one limiter that are in flight: a call each, for a key that is not in use."""

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from batchlimit.bucket.messages import Ask, Grant
from batchlimit.keyspace.dormant import DormantKeys
from batchlimit.keyspace.single_ask import SingleAsk
from batchlimit.overrides.code import Code
from batchlimit.overrides.key_rule import KeyRule
from batchlimit.overrides.overrides import NONE
from batchlimit.quota.key import stored
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.instance import Instance
from batchlimit.reservoir.options import Options

E = TypeVar("E")


class SingleAsks(Generic[E]):
    """Begins, settles and gives up single asks, at most one a key; the key of each counts as a key in memory.

    An entry does what a single ask cannot settle: `entry_of` brings its key into use. A keyspace has one of these.
    """

    __slots__ = (
        "_by_place",
        "_clock",
        "_dormant",
        "_entries",
        "_find",
        "_instance",
        "_options",
        "_settled",
        "answered",
        "code",
    )

    def __init__(
        self,
        entries: Mapping[str, E],
        dormant: DormantKeys,
        instance: Instance,
        options: Options,
        *,
        clock: Callable[[], float],
        find: Callable[[str, Quota], E],
        settled: Callable[[Quota, int], None],
        code: Code,
    ) -> None:
        """Begin with none.

        Args:
            entries: those in use, by the `place_of` their keys.
            dormant: the keys that are neither in use nor unknown.
            instance: who asks.
            options: the limiter's.
            clock: returns seconds.
            find: brings a key into use, with its single ask if there is one; returns its entry.
            settled: is called with the quota that the code has for a key, and the tokens that an ask has admitted.
            code: what holds for the keys by the code.
        """
        self._entries, self._dormant, self._instance, self._options = entries, dormant, instance, options
        self._clock, self._find, self._settled, self.code = clock, find, settled, code
        self._by_place: dict[str, SingleAsk] = {}
        self.answered = 0  # how many were settled

    def __repr__(self) -> str:
        return f"<SingleAsks of {self._instance.name}: {len(self)} in flight, {self.answered} settled>"

    def __len__(self) -> int:
        """How many are in flight."""
        return len(self._by_place)

    def __contains__(self, single: SingleAsk) -> bool:
        """Whether this one is in flight: it is neither settled nor given up, and its key is not in use."""
        return self._by_place.get(single.place) is single

    def at(self, place: str) -> SingleAsk | None:
        """Return the one in flight for the key at a `place_of`."""
        return self._by_place.get(place)

    def made(self, key: str, code: Code, cost: int, until: float, who: object = None) -> SingleAsk | None:
        """Return one for a call, which is to `begin`; None: the call needs an entry: no ask admits it.

        Args:
            key: as the caller named it.
            code: what holds by the code.
            cost: what the call costs, whatever its type.
            until: the call's deadline.
            who: tells the API whose call it is (default None).
        """
        in_force = self._instance.rules.in_force
        quota = own = code.quota(key)
        if in_force is not NONE or not code.is_enforced:
            rule = in_force.rule(stored(key), KeyRule(own, code.mode(key)))
            if not rule.is_plain:
                return None
            quota = rule.quota
        largest, is_denied = (quota.largest_cost, quota.denies_all) if quota.also else (quota.burst, not quota.rate)
        if cost.__class__ is not int or not 0 < cost <= largest or is_denied:
            return None
        return SingleAsk(key, quota, cost, until, who, code=own, edition=in_force.edition, rank=code.rank)

    def begin(self, single: SingleAsk) -> Ask | None:
        """Return what to ask for; None: the key is in use, or is to be."""
        place, dormant, in_flight = single.place, self._dormant, self._by_place
        if place in self._entries or place in in_flight or single.rank is not self.code.rank:
            return None
        if len(self._entries) + len(in_flight) + dormant.at_most >= self._options.max_keys and not self._make_room():
            return None  # an entry has to leave
        now, snapshot = self._clock(), dormant.take(place)
        ask = single.begin(snapshot, self._instance, self._options, now)
        if ask is not None:
            in_flight[place] = single
        elif snapshot is not None:
            dormant.put(place, snapshot, now)
        return ask

    def settle(self, single: SingleAsk, grant: Grant, now: float) -> float | None:
        """Take in the answer, if that is all there is to do.

        Returns:
            The instant at which to come and forget the dormant key (inf: no need); None: an entry has to take it in.
        """
        if single.entry is not None or (packed := single.settle(grant, now)) is None:
            return None
        self._by_place.pop(single.place, None)
        self._settled(single.code, single.cost)
        self.answered += 1
        return self._dormant.keep(single.place, packed, now, now)

    def entry_of(self, single: SingleAsk) -> E:
        """Return the entry that has to take in the answer."""
        if single.entry is None or single in self:  # who brought it into use may have been interrupted
            self._find(single.key, single.code)
        found: E = single.entry
        return found

    def give_up(self, single: SingleAsk) -> None:
        """Forget one whose caller was interrupted, or for which an entry is there."""
        if single in self:
            del self._by_place[single.place]

    def bring_into_use(self) -> None:
        """Have an entry take in the answer to each of them."""
        for single in list(self._by_place.values()):
            self.entry_of(single)

    def clear(self) -> None:
        """Forget all of them: their answers never come."""
        self._by_place.clear()

    def _make_room(self) -> bool:
        """Have dormant keys leave if one key more is too many; False: that is not enough."""
        in_use, most = len(self._entries) + len(self._by_place), self._options.max_keys
        self._dormant.make_room(in_use + len(self._dormant) + 1 - most)
        return in_use + len(self._dormant) < most
