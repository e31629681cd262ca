"""Which hosts a bucket knows, and what they hold of it."""

from dataclasses import dataclass

from batchlimit.core.share import ACTIVE, Claims


@dataclass(slots=True)
class Host:
    """What a bucket knows of one host; `held` is outstanding until `expires`. Instants are us since its epoch."""

    seq: int = -1
    held: int = 0
    expires: int = 0
    last: int = 0
    """When it was last served: from then on it accrues its share."""
    seen: int = 0
    granted: int = 0
    starts: int = 0
    weight: int = 1


class Roster:
    """The hosts by name, and the sums over them that the bucket needs at every call: so none of them is a loop."""

    __slots__ = ("_swept", "hosts", "lasts", "outstanding", "weights")

    def __init__(self) -> None:
        self.hosts: dict[str, Host] = {}
        self.outstanding = 0  # of all `held`
        self.weights = 0  # of all `weight`
        self.lasts = 0  # of all `last`, each times its weight
        self._swept = 0

    @property
    def active(self) -> int:
        """How many hosts share the bucket."""
        return len(self.hosts)

    def read(self, name: str, now: int) -> Host | None:
        """Return the host's entry, unless it has none or it has lapsed; what it held too long is released."""
        host = self.hosts.get(name)
        if host is None or not self._check(name, host, now):
            return None
        return host

    def enter(self, name: str, now: int, weight: int) -> Host:
        """Make an entry for a host that has none."""
        host = self.hosts[name] = Host(last=now, seen=now, weight=weight)
        self.weights += weight
        self.lasts += weight * now
        return host

    def forget(self, name: str, host: Host) -> None:
        """Strike a host that holds nothing."""
        del self.hosts[name]
        self.weights -= host.weight
        self.lasts -= host.weight * host.last

    def sweep(self, now: int, own: str, every: int) -> None:
        """Release what other hosts hold no longer, `every` so many us at most: O(1) a call, on average."""
        if now - self._swept < every:
            return
        self._swept = now
        for name, host in [each for each in self.hosts.items() if each[0] != own]:
            self._check(name, host, now)

    def settle(self, host: Host, kept: int) -> None:
        """Take note that of what the host held it has `kept`."""
        self.outstanding -= host.held - kept
        host.held = kept

    def lend(self, host: Host, tokens: int, starts: int, expires: int) -> None:
        """Take note of a grant."""
        self.outstanding += tokens
        host.held, host.granted, host.starts = host.held + tokens, tokens, starts
        host.expires = max(host.expires, expires)

    def claims(self, host: Host) -> Claims:
        """Return what the host's fair share depends on."""
        return Claims(host.weight, self.weights, host.last, self.lasts)

    def serve(self, host: Host, at: int) -> None:
        """Begin the host's share anew."""
        self.lasts, host.last = self.lasts + host.weight * (at - host.last), at

    def _check(self, name: str, host: Host, now: int) -> bool:
        """Release a lease that is over; return whether the host is one still."""
        if host.expires > now:
            return True
        self.settle(host, 0)
        host.granted = 0
        if host.seen + ACTIVE > now:
            return True
        self.forget(name, host)
        return False
