"""Which instances a bucket knows, and what they hold of it."""

from dataclasses import dataclass
from typing import NamedTuple

from batchlimit.bucket.fair_share import ACTIVE, SWEEP, Claims


@dataclass(slots=True)
class InstanceEntry:
    """What a bucket knows of one instance; `held` is outstanding until `expires`. Instants are us since its epoch."""

    last: int
    """When it was last served: from then on it accrues its share."""
    seen: int
    seq: int = -1
    held: int = 0
    expires: int = 0
    granted: int = 0
    starts: int = 0
    weight: int = 0
    """Its part of the whole; without one it has no share, and is no active instance: it only remembers."""
    known: int = 0
    """Until when it remembers a refund."""

    def returnable(self, kept: int, now: int) -> int:
        """Return how many tokens it may bring back unspent if it has `kept` so many."""
        spent = self.granted if self.held < self.granted and now < self.expires else 0
        return self.held - kept + spent

    def is_over(self, now: int) -> bool:
        """Whether its lease is over, and it still has something of it: tokens, or a share though it asked long ago."""
        return self.expires <= now and (self.held > 0 or self.seen + ACTIVE <= now)


class Reserved(NamedTuple):
    """Tokens that only one instance may draw on, until it is served or `ends`."""

    name: str
    tokens: int
    ends: float


class InstanceTable:
    """The instances by name, and the sums over them that the bucket needs at every call: so none of them is a loop.

    It has 13 public methods: all change the sums together with what they are of, or answer by the sums.
    """

    __slots__ = ("_swept", "active", "instances", "lasts", "outstanding", "weights")

    def __init__(self) -> None:
        self.instances: dict[str, InstanceEntry] = {}
        self.outstanding = 0  # of all `held`
        self.active = 0  # those that share the bucket
        self.weights = 0  # of all `weight`
        self.lasts = 0  # of all `last`, each times its weight
        self._swept = 0

    def clear(self) -> None:
        """Forget all of them."""
        self.outstanding = self.active = self.weights = self.lasts = 0
        self.instances.clear()

    def over(self, now: int, own: str, every: int | float) -> list[tuple[str, InstanceEntry]]:
        """Return from whom something is to be taken, in the order in which their leases ended.

        The own instance, and all others `every` so many us, the rarer the more there are: so a call costs O(1) on
        average.
        """
        instances = {own: self.instances[own]} if own in self.instances else {}
        if now - self._swept >= max(every, SWEEP * self.active):
            self._swept = now
            instances = self.instances
        over = [(name, instance) for name, instance in instances.items() if instance.is_over(now)]
        return sorted(over, key=lambda entry: entry[1].expires)

    def enter(self, name: str, now: int) -> InstanceEntry:
        """Make an entry for an instance that has none, without weight."""
        instance = self.instances[name] = InstanceEntry(last=now, seen=now)
        return instance

    def weigh(self, instance: InstanceEntry, weight: int, now: int) -> None:
        """Give an instance another weight; if it had none, its share begins anew."""
        self.weights, self.lasts = self.weights - instance.weight, self.lasts - instance.weight * instance.last
        if instance.weight == 0:
            self.active, instance.last = self.active + 1, now
        if weight == 0:
            self.active -= 1
        instance.weight = weight
        self.weights, self.lasts = self.weights + weight, self.lasts + weight * instance.last

    def overweight(self, instance: InstanceEntry) -> int:
        """Return how much heavier it is than all are on average, times how many there are; below 0: lighter."""
        return instance.weight * self.active - self.weights

    def ease(self, instance: InstanceEntry, now: int) -> None:
        """Have a heavier instance weigh one more than the others do on average, until it asks again."""
        self.weigh(instance, (self.weights - instance.weight) // (self.active - 1) + 1, now)

    def forget_idle(self, name: str, instance: InstanceEntry, now: int) -> None:
        """Forget an instance that holds nothing and asked long ago."""
        if instance.expires <= now and instance.seen + ACTIVE <= now:
            self.forget(name, instance, now)

    def forget(self, name: str, instance: InstanceEntry, now: int) -> None:
        """Take away the share of an instance that holds nothing; strike its entry, unless it remembers a refund."""
        if instance.weight > 0:
            self.weigh(instance, 0, now)
        if instance.known <= now:
            del self.instances[name]

    def settle(self, instance: InstanceEntry, kept: int) -> None:
        """Take note that of what the instance held it has `kept`."""
        self.outstanding -= instance.held - kept
        instance.held = kept

    def lend(self, instance: InstanceEntry, tokens: int, starts: int, expires: int) -> None:
        """Take note of a grant."""
        self.outstanding += tokens
        instance.held, instance.granted, instance.starts = instance.held + tokens, tokens, starts
        instance.expires = max(instance.expires, expires)

    def spend(self, instance: InstanceEntry, tokens: int, now: int, expires: int) -> None:
        """Take note of a grant that is spent at once; until it `expires` a caller may be admitted by it."""
        instance.granted, instance.starts, instance.expires = tokens, now, expires

    def claims(self, instance: InstanceEntry) -> Claims:
        """Return what the instance's fair share depends on."""
        return Claims(instance.weight, self.weights, instance.last, self.lasts)

    def serve(self, instance: InstanceEntry, at: int) -> None:
        """Begin the instance's share anew."""
        self.lasts, instance.last = self.lasts + instance.weight * (at - instance.last), at
