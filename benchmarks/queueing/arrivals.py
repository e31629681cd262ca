"""Callers of an open loop: they come whether or not others were served."""

import math
from collections.abc import Iterator
from random import Random

from benchmarks.queueing.scenario import Kind, Scenario


class Call:
    """One caller: when it first came, how much work it brings, and how far it got. Instants and spans in ns."""

    __slots__ = ("admitted", "came", "in_flight", "operation", "tries", "work")

    def __init__(self, came: int, work: int, operation: str) -> None:
        self.came, self.work, self.operation = came, work, operation
        self.tries = self.admitted = self.in_flight = 0


def arrivals(scenario: Scenario, seed: int) -> Iterator[Call]:
    """All callers in order of time. The same seed brings the same, whatever becomes of them."""
    random = Random(f"arrivals {scenario.letter} {seed}")
    shares = [kind.share for kind in scenario.kinds]
    shapes = [(shape(kind), kind.operation) for kind in scenario.kinds]
    ends = [phase.since for phase in scenario.phases[1:]] + [scenario.seconds]
    for phase, end in zip(scenario.phases, ends, strict=True):
        rate, now = scenario.rate(phase), phase.since
        # A Poisson process has no memory: it may begin anew with each phase.
        while (now := now + random.expovariate(rate)) < end:
            (mu, sigma), operation = shapes[0] if len(shapes) == 1 else random.choices(shapes, shares)[0]
            yield Call(int(now * 1e9), int(random.lognormvariate(mu, sigma) * 1e9), operation)


def shape(kind: Kind) -> tuple[float, float]:
    """mu and sigma of the lognormal distribution with this mean and this sd / mean."""
    variance = math.log(1 + kind.cv**2)
    return math.log(kind.mean) - variance / 2, math.sqrt(variance)
