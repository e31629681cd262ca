"""The callers of a fleet: who comes when, with how much work, to which limiter."""

from collections.abc import Iterator
from itertools import accumulate
from random import Random

from benchmarks.queueing.arrivals import Call, shape
from benchmarks.queueing.fleet.scenario import FleetScenario


def callers(scenario: FleetScenario, seed: int) -> Iterator[tuple[Call, int]]:
    """All callers in order of time, each with its limiter. The same seed brings the same, whatever becomes of them."""
    random = Random(f"callers {scenario.name} {seed}")
    shares = list(accumulate(kind.share for kind in scenario.kinds))
    shapes = [(*shape(kind), kind.operation) for kind in scenario.kinds]
    for phase, end in zip(scenario.phases, scenario.ends(), strict=True):
        for since, until, rate in scenario.rates(phase, end):
            now = since
            while rate and (now := now + random.expovariate(rate)) < until:
                mu, sigma, operation = shapes[0] if len(shapes) == 1 else random.choices(shapes, cum_weights=shares)[0]
                call = Call(int(now * 1e9), int(random.lognormvariate(mu, sigma) * 1e9), operation)
                yield call, _limiter(scenario, now, random.random())


def _limiter(scenario: FleetScenario, now: float, chance: float) -> int:
    if len(scenario.members) == 1:
        return 0
    weights = [each.weight if each.joins <= now < each.leaves else 0.0 for each in scenario.members]
    chance *= sum(weights)
    for place, weight in enumerate(weights):
        chance -= weight
        if chance < 0:
            return place
    return max(place for place, weight in enumerate(weights) if weight)
