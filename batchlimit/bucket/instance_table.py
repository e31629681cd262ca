"""Which hosts a bucket knows, and what they hold of it."""

from dataclasses import dataclass

from batchlimit.bucket.fair_share import ACTIVE, SWEEP, Claims


@dataclass(slots=True)
class InstanceEntry:
    """What a bucket knows of one host; `held` is outstanding until `expires`. Instants are us since its epoch."""

    seq: int = -1
    held: int = 0
    expires: int = 0
    last: int = 0
    """When it was last served: from then on it accrues its share."""
    seen: int = 0
    granted: int = 0
    starts: int = 0
    weight: int = 0
    """Its part of the whole; without one it has no share, and is no active host: it only remembers."""
    known: int = 0
    """Until when it remembers a refund."""

    def is_over(self, now: int) -> bool:
        """Whether its lease is over, and it still has something of it: tokens, or a share though it asked long ago."""
        return self.expires <= now and (self.held > 0 or self.seen + ACTIVE <= now)


class InstanceTable:
    """The hosts by name, and the sums over them that the bucket needs at every call: so none of them is a loop."""

    __slots__ = ("_swept", "active", "hosts", "lasts", "outstanding", "weights")

    def __init__(self) -> None:
        self.hosts: dict[str, InstanceEntry] = {}
        self.outstanding = 0  # of all `held`
        self.active = 0  # those that share the bucket
        self.weights = 0  # of all `weight`
        self.lasts = 0  # of all `last`, each times its weight
        self._swept = 0

    def over(self, now: int, own: str, every: int | float) -> list[tuple[str, InstanceEntry]]:
        """Return from whom something is to be taken, in the order in which their leases ended.

        The own host, and all others `every` so many us, the rarer the more there are: so a call costs O(1) on average.
        """
        hosts = {own: self.hosts[own]} if own in self.hosts else {}
        if now - self._swept >= max(every, SWEEP * self.active):
            self._swept = now
            hosts = self.hosts
        over = [(name, host) for name, host in hosts.items() if host.is_over(now)]
        return sorted(over, key=lambda entry: entry[1].expires)

    def enter(self, name: str, now: int) -> InstanceEntry:
        """Make an entry for a host that has none, without weight."""
        host = self.hosts[name] = InstanceEntry(last=now, seen=now)
        return host

    def weigh(self, host: InstanceEntry, weight: int, now: int) -> None:
        """Give a host another weight; if it had none, its share begins anew."""
        self.weights, self.lasts = self.weights - host.weight, self.lasts - host.weight * host.last
        if host.weight == 0:
            self.active, host.last = self.active + 1, now
        if weight == 0:
            self.active -= 1
        host.weight = weight
        self.weights, self.lasts = self.weights + weight, self.lasts + weight * host.last

    def forget_idle(self, name: str, host: InstanceEntry, now: int) -> None:
        """Forget a host that holds nothing and asked long ago."""
        idle = host.expires <= now and host.seen + ACTIVE <= now
        if idle and (host.weight > 0 or host.known <= now):
            self.forget(name, host, now)

    def forget(self, name: str, host: InstanceEntry, now: int) -> None:
        """Take away the share of a host that holds nothing; strike its entry, unless it remembers a refund."""
        if host.weight > 0:
            self.weigh(host, 0, now)
        if host.known <= now:
            del self.hosts[name]

    def settle(self, host: InstanceEntry, kept: int) -> None:
        """Take note that of what the host held it has `kept`."""
        self.outstanding -= host.held - kept
        host.held = kept

    def lend(self, host: InstanceEntry, tokens: int, starts: int, expires: int) -> None:
        """Take note of a grant."""
        self.outstanding += tokens
        host.held, host.granted, host.starts = host.held + tokens, tokens, starts
        host.expires = max(host.expires, expires)

    def claims(self, host: InstanceEntry) -> Claims:
        """Return what the host's fair share depends on."""
        return Claims(host.weight, self.weights, host.last, self.lasts)

    def serve(self, host: InstanceEntry, at: int) -> None:
        """Begin the host's share anew."""
        self.lasts, host.last = self.lasts + host.weight * (at - host.last), at
