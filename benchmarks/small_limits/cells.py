"""What a quota admits over so many instances, at so much demand, in virtual time: ours beside one plain bucket."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from batchlimit import Quota
from batchlimit.bucket.fair_share import Claims, bands_of, spends
from benchmarks.audited_fleet.audit import excess, jain
from benchmarks.audited_fleet.instance import InstanceLog
from benchmarks.scenarios import Scenario, steady
from benchmarks.virtual import LIMITERS, OURS
from tests.simulation.fleet import Arrivals, at_random, carried_out, evenly

PLAIN = "per call"
RATES = {"1/minute": 1 / 60, "1/s": 1.0, "10/s": 10.0, "100/s": 100.0}
BURSTS = (1, 2, 5, 10, 50)
INSTANCES = (1, 2, 4, 8, 20)
DEMANDS = (0.9, 2, 10)
ARRIVALS: dict[str, Arrivals] = {"even": evenly, "random": at_random}
QUICK = tuple(product(("1/s", "100/s"), (1, 5)))
"""The quotas of a quick run."""
LEAST, LEAST_SPENT = 0.97, 0.995
"""Of what the plain bucket admits; and where no instance can lease."""
UNFAIR = 0.02
"""How much lower Jain's index over the instances may be than with the plain bucket, where calls come at random."""
_ROUND_TRIP = 0.001
"""Seconds."""
_TOKENS, _FEW = 100, 20
"""A run lasts until so many tokens have flowed in for each instance, and for four at the least,"""
_BURSTS = 20
"""and until so many bursts have: what instances hold at the end is not to count for much."""


class Cell(NamedTuple):
    """One run of each; `arrivals` is one of ARRIVALS, and demand is a multiple of the rate."""

    rate: str
    burst: int
    arrivals: str
    instances: int
    demand: float

    def __str__(self) -> str:
        return f"{self.quota}, {self.instances} instance{'s' * (self.instances > 1)}, {self.demand:g}x, {self.arrivals}"

    @property
    def quota(self) -> str:
        return f"{self.rate} burst {self.burst}"

    @property
    def seconds(self) -> float:
        return (
            max((_TOKENS if self.is_long else _FEW) * max(4, self.instances), _BURSTS * self.burst) / RATES[self.rate]
        )

    @property
    def is_long(self) -> bool:
        """Whether enough tokens flow in to judge how evenly they are shared; a minute for each is too long."""
        return RATES[self.rate] >= 1.0

    @property
    def spends(self) -> bool:
        """Whether no instance can lease: a bucket divides by those that asked within a second."""
        asking = min(self.instances, max(1, int(self.demand * RATES[self.rate])))
        return spends(bands_of(Quota.parse(self.quota)), Claims(1, asking, 0, 0))


GUARDED = (
    Cell("1/s", 1, "random", 8, 2),
    Cell("10/s", 2, "random", 8, 10),
    Cell("100/s", 1, "random", 1, 10),
    Cell("100/s", 5, "random", 1, 0.9),
    Cell("100/s", 50, "random", 4, 2),
)
"""Those that are held to what they were."""


class Found(NamedTuple):
    """What came of a cell; `part`: of what the plain bucket admits; `calls`: of the store, for each decision."""

    cell: Cell
    part: float
    excess: float
    jain: float
    plain_jain: float
    calls: float

    @property
    def faults(self) -> Iterator[str]:
        """What is not as it is to be."""
        if self.part < (LEAST_SPENT if self.cell.spends else LEAST):
            yield f"{self.part:.3f} of the plain bucket"
        if self.excess > 0.0:
            yield f"{self.excess:.2f} tokens of excess"
        if self.cell.arrivals == "random" and self.cell.is_long and self.jain < self.plain_jain - UNFAIR:
            yield f"Jain's index {self.jain:.3f}, and {self.plain_jain:.3f} of the plain bucket"


def measured(cell: Cell) -> Found:
    """Run a cell."""
    ours, plain = _run(cell, OURS), _run(cell, PLAIN)
    admissions = [call[:3] for log in ours for call in log.admitted]
    decisions = len(admissions) + sum(len(log.refused) for log in ours)
    return Found(
        cell,
        len(admissions) / max(1, sum(len(log.admitted) for log in plain)),
        excess(admissions, Quota.parse(cell.quota)),
        jain([len(log.admitted) for log in ours]),
        jain([len(log.admitted) for log in plain]),
        sum(log.calls for log in ours) / max(1, decisions),
    )


def _run(cell: Cell, who: str) -> list[InstanceLog]:
    plan = Scenario(cell.quota, cell.instances, steady(cell.demand)).plan("simulated", cell.seconds)
    return carried_out(plan, LIMITERS[who], _ROUND_TRIP, ARRIVALS[cell.arrivals])


def cells(quotas: Sequence[tuple[str, int]]) -> list[Cell]:
    """All cells of these quotas, row by row."""
    return [
        Cell(rate, burst, arrivals, instances, demand)
        for (rate, burst), arrivals, instances, demand in product(quotas, ARRIVALS, INSTANCES, DEMANDS)
    ]
