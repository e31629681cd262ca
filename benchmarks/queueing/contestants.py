"""The laws that are compared, and the bounds that they are compared with."""

from collections.abc import Callable
from random import Random

from batchlimit.concurrency.law import Law
from batchlimit.concurrency.laws import AIMD, Fixed, Gradient, Gradient2, Knee, Periodic, Vegas, Windowed
from benchmarks.queueing.scenario import Scenario

OURS = "Knee"


def _jitter() -> Callable[[], float]:
    random = Random("jitter")
    return lambda: random.uniform(0.5, 1.0)


BOUNDS: dict[str, Callable[[Scenario], Law]] = {
    "no limit": lambda scenario: Fixed(10**9),
    "fixed = c": lambda scenario: Fixed(scenario.workers),
    "fixed = 2c": lambda scenario: Fixed(2 * scenario.workers),
}
"""What no law needs to know: c, the number of workers at first."""

LAWS: dict[str, Callable[[Scenario], Law]] = {
    "AIMD, 5 s": lambda scenario: AIMD(timeout=5),
    "AIMD, 100 ms": lambda scenario: AIMD(timeout=0.1, minimum=1),
    "Periodic AIMD, 100 ms": lambda scenario: Periodic(AIMD(timeout=0.1, minimum=1)),
    "Vegas": lambda scenario: Vegas(jitter=_jitter()),
    "Windowed Vegas": lambda scenario: Windowed(Vegas(jitter=_jitter())),
    "Gradient": lambda scenario: Gradient(),
    "Gradient2": lambda scenario: Gradient2(),
    "Windowed Gradient2": lambda scenario: Windowed(Gradient2()),
    "Windowed Gradient2, 1..1000": lambda scenario: Windowed(Gradient2(minimum=1, maximum=1000)),
    OURS: lambda scenario: Knee(),
}
"""With the defaults of each, but for what the name says: where a least limit of 20 could not serve a small server, the
variant that may go down to 1 stands beside."""

CONTESTANTS = {**BOUNDS, **LAWS}
