"""What a fleet is to do: how many hosts and threads call for which quota, and how fast, phase by phase."""

from dataclasses import dataclass
from itertools import accumulate

from batchlimit import Quota


@dataclass(frozen=True, slots=True)
class Phase:
    """A spell of even demand: `rate` calls/s of the whole fleet together, for `seconds`."""

    seconds: float
    rate: float


@dataclass(frozen=True, slots=True)
class Plan:
    """One run of a fleet: every thread of every host makes the same share of each phase's calls, all for one key."""

    url: str
    quota: str
    key: str
    hosts: int
    threads: int
    phases: tuple[Phase, ...]
    cost: int = 1
    prefix: str = "batchlimit-demo"
    seed: int = 1

    @property
    def seconds(self) -> float:
        """How long it takes."""
        return sum(phase.seconds for phase in self.phases)

    @property
    def calls(self) -> float:
        """How many calls a machine that keeps up makes in that time."""
        return sum(phase.seconds * phase.rate for phase in self.phases)

    @property
    def ends(self) -> list[float]:
        """When each phase is over, in seconds since the start."""
        return list(accumulate(phase.seconds for phase in self.phases))


def steady(quota: Quota, demand: float, seconds: float, cost: int = 1) -> tuple[Phase, ...]:
    """Calls that want `demand` times the quota's rate, from the first second to the last."""
    return (Phase(seconds, demand * quota.rate / cost),)


def burst(quota: Quota, demand: float, seconds: float, cost: int = 1) -> tuple[Phase, ...]:
    """Half of the time a tenth of the quota's rate, so that the bucket and the leases fill; then `demand` times it."""
    return (*steady(quota, 0.1, seconds / 2, cost), *steady(quota, demand, seconds / 2, cost))
