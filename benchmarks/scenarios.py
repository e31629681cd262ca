"""What a fleet may meet, as data: for real processes, and for whoever simulates them.

Nothing here is tied to a machine: demand is in multiples of the quota's rate, times are parts of the run.
"""

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat

from batchlimit import Quota
from benchmarks.audited_fleet.limiter import Limiter
from benchmarks.audited_fleet.plan import Phase, Plan, ours


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the run with even demand: tokens wanted by all instances, in multiples of the quota's rate."""

    part: float
    demand: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """One quota, and what instances want of it. Empty weights or presence: all alike, and there all the time.

    `rate` is what the demand is a multiple of: the quota's slowest bandwidth. `presence`: when each instance joins, and
    when it is killed, as parts of the run; what an absent instance would want nobody wants.
    """

    quota: str
    instances: int
    stretches: tuple[Stretch, ...]
    weights: tuple[float, ...] = ()
    costs: tuple[int, ...] = (1,)
    presence: tuple[tuple[float, float], ...] = ()

    @property
    def rate(self) -> float:
        return min(each.rate for each in Quota.parse(self.quota).bandwidths)

    @property
    def is_even(self) -> bool:
        """Whether the same is wanted from beginning to end: then all of the allowance can be used."""
        return len(self.stretches) == 1 and not self.presence

    def plan(self, url: str, seconds: float, limiter: Callable[[Plan], Limiter] = ours, threads: int = 4) -> Plan:
        """The scenario as a run of `seconds` on the store at `url`, on a key of its own."""
        cost = sum(self.costs) / len(self.costs)
        return Plan(
            url,
            self.quota,
            f"bench-{secrets.token_hex(4)}",
            self.instances,
            threads,
            tuple(Phase(each.part * seconds, each.demand * self.rate / cost) for each in self.stretches),
            costs=self.costs,
            weights=self.weights,
            presence=tuple(
                (joins * seconds, gone * seconds if gone < 1 else math.inf) for joins, gone in self.presence
            ),
            limiter=limiter,
        )


def steady(demand: float) -> tuple[Stretch, ...]:
    return (Stretch(1, demand),)


def on_off(demand: float, times: int) -> tuple[Stretch, ...]:
    return (Stretch(0.5 / times, demand), Stretch(0.5 / times, 0)) * times


QUIET_THEN_40X = (Stretch(0.5, 0.1), Stretch(0.5, 40))
_USUAL = "2000/s burst 2000"
_ALWAYS = (0.0, 1.0)

SCENARIOS: dict[str, Scenario] = {
    "0.5x": Scenario(_USUAL, 4, steady(0.5)),
    "0.9x": Scenario(_USUAL, 4, steady(0.9)),
    "2x": Scenario(_USUAL, 4, steady(2)),
    "6x": Scenario(_USUAL, 4, steady(6)),
    "50x": Scenario(_USUAL, 4, steady(50)),
    "quiet then 40x": Scenario(_USUAL, 4, QUIET_THEN_40X),
    "on and off, 4x": Scenario(_USUAL, 4, on_off(4, 6)),
    "Zipf, 0.9x": Scenario(_USUAL, 8, steady(0.9), weights=tuple(1 / rank for rank in range(1, 9))),
    "Zipf, 2x": Scenario(_USUAL, 8, steady(2), weights=tuple(1 / rank for rank in range(1, 9))),
    "one instance at half demand, 2x": Scenario(_USUAL, 4, steady(2), weights=(0.5, 1, 1, 1)),
    "instances vanish, 2x": Scenario(
        _USUAL, 8, steady(2), presence=(*repeat(_ALWAYS, 4), *((0, 0.4),) * 2, *((0, 0.6),) * 2)
    ),
    "instances join, 2x": Scenario(
        _USUAL, 8, steady(2), presence=(*repeat(_ALWAYS, 4), *((0.3, 1),) * 2, *((0.6, 1),) * 2)
    ),
    "100 per minute, 10 instances, 60x": Scenario("100 per minute", 10, steady(60)),
    "burst of 50 ms, 0.9x": Scenario("4000/s burst 200", 4, steady(0.9)),
    "burst of 50 ms, 2x": Scenario("4000/s burst 200", 4, steady(2)),
    "burst below instances, 2x": Scenario("100/s burst 4", 8, steady(2)),
    "costs 1 to 50, 0.9x": Scenario(_USUAL, 4, steady(0.9), costs=tuple(range(1, 51))),
    "costs 1 to 50, 2x": Scenario(_USUAL, 4, steady(2), costs=tuple(range(1, 51))),
    "two bandwidths, 2x": Scenario("2000/s burst 400; 3000/2s", 4, steady(2)),
}
