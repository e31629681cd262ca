"""The laws that are compared before one server, and the bounds that they are compared with."""

from collections.abc import Callable
from random import Random

from batchlimit.concurrency.law import Law
from batchlimit.concurrency.laws import AIMD, Fixed, Gradient, Gradient2, Knee, Periodic, Vegas, Windowed
from benchmarks.queueing.fleet.scenario import FleetScenario

OURS = "Knee"


def _jitter() -> Callable[[], float]:
    random = Random("jitter")
    return lambda: random.uniform(0.5, 1.0)


CONTESTANTS: dict[str, Callable[[FleetScenario], Law]] = {
    "no limit": lambda scenario: Fixed(10**6),
    "fixed = 2c/N": lambda scenario: Fixed(max(1, 2 * scenario.workers // len(scenario.members))),
    "AIMD, 5 s": lambda scenario: AIMD(timeout=5),
    "AIMD, 200 ms": lambda scenario: AIMD(timeout=0.2, minimum=1),
    "Periodic AIMD, 200 ms": lambda scenario: Periodic(AIMD(timeout=0.2, minimum=1)),
    "Vegas": lambda scenario: Vegas(jitter=_jitter()),
    "Windowed Vegas": lambda scenario: Windowed(Vegas(jitter=_jitter())),
    "Gradient": lambda scenario: Gradient(),
    "Gradient2": lambda scenario: Gradient2(),
    "Windowed Gradient2": lambda scenario: Windowed(Gradient2()),
    "Windowed Gradient2, 1..1000": lambda scenario: Windowed(Gradient2(minimum=1, maximum=1000)),
    OURS: lambda scenario: Knee(),
}
"""With the defaults of each, but for what the name says. c, the workers, and N, the limiters, only a bound knows."""
