"""The plan of a run: how many processes, the quota, the demand, the costs, and when each process is present."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, pairwise

from batchlimit import Quota
from benchmarks.audited_fleet.limiter import AsyncLimiter, AsyncWatchedLimiter, Limiter, WatchedLimiter

_DEADLINE = 1.0
"""Seconds for a store call. Longer than the default, because all processes and the server share one busy machine."""


class Api(StrEnum):
    """The callers of a process: threads, or tasks of one event loop."""

    THREADS = "threads"
    ASYNC = "async"

    @property
    def callers(self) -> str:
        """The callers' name, in the plural."""
        return "tasks" if self is Api.ASYNC else "threads"


@dataclass(frozen=True, slots=True)
class Phase:
    """A time of even demand: `rate` calls/s of the whole fleet, for `seconds`."""

    seconds: float
    rate: float


def ours(plan: "Plan") -> Limiter:
    """Make this package's limiter for threads."""
    return WatchedLimiter.from_url(plan.url, plan.quota, prefix=plan.prefix, deadline=_DEADLINE)


def ours_awaited(plan: "Plan") -> AsyncLimiter:
    """Make this package's limiter for tasks."""
    return AsyncWatchedLimiter.from_url(plan.url, plan.quota, prefix=plan.prefix, deadline=_DEADLINE)


@dataclass(frozen=True, slots=True)
class Plan:
    """One run of a fleet with one key. The threads of a process, or its tasks, share its calls evenly.

    An empty `weights` means equal demand; an empty `presence`, that all processes are present all the time. The demand
    of an absent process is not made up for by others.
    """

    url: str
    quota: str
    key: str
    processes: int
    threads: int
    """Callers in each process: threads, or as many tasks."""
    phases: tuple[Phase, ...]
    costs: tuple[int, ...] = (1,)
    """Tokens for each call. Each caller repeats them in a shuffled order of its own."""
    prefix: str = "batchlimit-demo"
    seed: int = 1
    weights: tuple[float, ...] = ()
    """Each process's part of the demand, in any unit."""
    presence: tuple[tuple[float, float], ...] = ()
    """When each process joins and vanishes, in seconds since the start. A vanished process returns no tokens."""
    limiter: Callable[["Plan"], Limiter] = ours
    """Makes each process's limiter; a module-level function, so that another process can import it."""
    api: Api = Api.THREADS
    async_limiter: Callable[["Plan"], AsyncLimiter] = ours_awaited
    """The same for tasks."""

    def __post_init__(self) -> None:
        for name, column in (("weights", self.weights), ("presence", self.presence)):
            if column and len(column) != self.processes:
                raise ValueError(f"{name} of {len(column)} processes in a plan for {self.processes}")
        if self.weights and not (min(self.weights) >= 0 < sum(self.weights)):
            raise ValueError(f"weights must be at least 0, and not all 0, not {self.weights!r}")
        if not self.costs:
            raise ValueError("costs must not be empty")
        if self.api is Api.ASYNC and self.limiter is not ours:
            raise ValueError(f"limiter {self.limiter.__name__!r} is for threads: tasks call an async_limiter")

    @property
    def seconds(self) -> float:
        """The length of the run in seconds."""
        return sum(phase.seconds for phase in self.phases)

    @property
    def calls(self) -> float:
        """How many calls are planned: those that a fast enough machine makes."""
        return sum(
            self.share(process) * phase.rate * _overlap(self.stay(process), spell)
            for process in range(self.processes)
            for phase, spell in zip(self.phases, pairwise([0.0, *self.ends]), strict=True)
        )

    @property
    def tokens(self) -> float:
        """How many tokens those calls ask for."""
        return self.calls * sum(self.costs) / len(self.costs)

    @property
    def ends(self) -> list[float]:
        """When each phase ends, in seconds since the start."""
        return list(accumulate(phase.seconds for phase in self.phases))

    def share(self, process: int) -> float:
        """Return this process's part of the fleet's demand; all parts add up to 1."""
        return self.weights[process] / math.fsum(self.weights) if self.weights else 1 / self.processes

    def stay(self, process: int) -> tuple[float, float]:
        """Return when this process joins and leaves, in seconds since the start."""
        begin, end = self.presence[process] if self.presence else (0.0, self.seconds)
        return begin, min(end, self.seconds)

    def vanishes(self, process: int) -> bool:
        """Whether the process leaves before the run is over."""
        return self.stay(process)[1] < self.seconds


def _overlap(stay: tuple[float, float], spell: tuple[float, float]) -> float:
    return max(0.0, min(stay[1], spell[1]) - max(stay[0], spell[0]))


def steady(quota: Quota, demand: float, seconds: float, cost: float = 1) -> tuple[Phase, ...]:
    """Return phases of an even demand of `demand` times the quota's rate."""
    return (Phase(seconds, demand * quota.rate / cost),)


def burst(quota: Quota, demand: float, seconds: float, cost: float = 1) -> tuple[Phase, ...]:
    """Return phases of half the time at a tenth of the rate, so that bucket and leases fill, then `demand` times it."""
    return (*steady(quota, 0.1, seconds / 2, cost), *steady(quota, demand, seconds / 2, cost))
