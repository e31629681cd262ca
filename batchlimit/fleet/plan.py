"""What a fleet is to do: which hosts call for which quota, how fast, at what cost, and when each of them is there."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import accumulate, pairwise
from typing import Any

from batchlimit import Quota
from batchlimit.fleet.limiter import AsyncLimiter, AsyncWatchedLimiter, Limiter, WatchedLimiter

_DEADLINE = 1.0
"""Seconds that a host's call of the store may take: many hosts and their server share a machine here, which is late."""


class Front(StrEnum):
    """What the callers of a host are: threads, or tasks of one event loop."""

    THREADS = "threads"
    ASYNC = "async"

    @property
    def callers(self) -> str:
        """What they are called."""
        return "tasks" if self is Front.ASYNC else "threads"


@dataclass(frozen=True, slots=True)
class Phase:
    """A spell of even demand: `rate` calls/s of the whole fleet together, for `seconds`."""

    seconds: float
    rate: float


def ours(plan: "Plan") -> Limiter:
    """The limiter of this package."""
    return WatchedLimiter.from_url(plan.url, plan.quota, prefix=plan.prefix, deadline=_DEADLINE)


def ours_awaited(plan: "Plan") -> AsyncLimiter:
    """The limiter of this package for tasks."""
    return AsyncWatchedLimiter.from_url(plan.url, plan.quota, prefix=plan.prefix, deadline=_DEADLINE)


@dataclass(frozen=True, slots=True)
class Plan:
    """One run of a fleet, all for one key; the threads of a host, or its tasks, share its calls evenly.

    An empty `weights` or `presence` means: all hosts alike, and there from the first second to the last. What an
    absent host would have asked for, nobody asks for.
    """

    url: str
    quota: str
    key: str
    hosts: int
    threads: int
    """Callers in each host: threads, or as many tasks."""
    phases: tuple[Phase, ...]
    costs: tuple[int, ...] = (1,)
    """Tokens a call: each thread goes round and round through them, in a shuffled order of its own."""
    prefix: str = "batchlimit-demo"
    seed: int = 1
    weights: tuple[float, ...] = ()
    """Each host's part of the demand, in any unit."""
    presence: tuple[tuple[float, float], ...] = ()
    """When each host joins and vanishes, in seconds since the start; one that vanishes gives nothing back."""
    limiter: Callable[["Plan"], Limiter] = ours
    """Makes each host's limiter; a function of a module, so that another process can find it."""
    front: Front = Front.THREADS
    async_limiter: Callable[["Plan"], AsyncLimiter] = ours_awaited
    """The same where callers are tasks."""

    def __post_init__(self) -> None:
        for name, column in (("weights", self.weights), ("presence", self.presence)):
            if column and len(column) != self.hosts:
                raise ValueError(f"{name} of {len(column)} hosts in a plan for {self.hosts}")
        if self.weights and not (min(self.weights) >= 0 < sum(self.weights)):
            raise ValueError(f"weights must be at least 0, and some of them more, not {self.weights!r}")
        if not self.costs:
            raise ValueError("costs must be at least one")
        if self.front is Front.ASYNC and self.limiter is not ours:
            raise ValueError(f"limiter {self.limiter.__name__!r} is for threads: tasks call an async_limiter")

    @property
    def seconds(self) -> float:
        """How long it takes."""
        return sum(phase.seconds for phase in self.phases)

    @property
    def calls(self) -> float:
        """How many calls a machine that keeps up makes in that time."""
        return sum(
            self.share(host) * phase.rate * _overlap(self.stay(host), spell)
            for host in range(self.hosts)
            for phase, spell in zip(self.phases, pairwise([0.0, *self.ends]), strict=True)
        )

    @property
    def tokens(self) -> float:
        """How many tokens those calls want."""
        return self.calls * sum(self.costs) / len(self.costs)

    @property
    def ends(self) -> list[float]:
        """When each phase is over, in seconds since the start."""
        return list(accumulate(phase.seconds for phase in self.phases))

    def share(self, host: int) -> float:
        """This host's part of the fleet's demand; all parts together are 1."""
        return self.weights[host] / math.fsum(self.weights) if self.weights else 1 / self.hosts

    def stay(self, host: int) -> tuple[float, float]:
        """When this host joins and when it is gone, in seconds since the start."""
        begin, end = self.presence[host] if self.presence else (0.0, self.seconds)
        return begin, min(end, self.seconds)

    def vanishes(self, host: int) -> bool:
        """Whether the host is gone before the run is over."""
        return self.stay(host)[1] < self.seconds

    def as_json(self) -> dict[str, Any]:
        """Plain values; the limiter that is called, by its name."""
        plain = asdict(self) | {"seconds": self.seconds, "limiter": self.limiter.__name__}
        awaited = plain.pop("async_limiter").__name__
        return plain | {"limiter": awaited} if self.front is Front.ASYNC else plain


def _overlap(stay: tuple[float, float], spell: tuple[float, float]) -> float:
    return max(0.0, min(stay[1], spell[1]) - max(stay[0], spell[0]))


def steady(quota: Quota, demand: float, seconds: float, cost: float = 1) -> tuple[Phase, ...]:
    """Calls that want `demand` times the quota's rate, from the first second to the last."""
    return (Phase(seconds, demand * quota.rate / cost),)


def burst(quota: Quota, demand: float, seconds: float, cost: float = 1) -> tuple[Phase, ...]:
    """Half of the time a tenth of the quota's rate, so that the bucket and the leases fill; then `demand` times it."""
    return (*steady(quota, 0.1, seconds / 2, cost), *steady(quota, demand, seconds / 2, cost))
