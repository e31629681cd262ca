"""What a server behind a concurrency limit may meet, as data, and what its limit is held to.

The letters A to H and their targets were set before any law of ours was tuned; a change here moves the goal.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

SEEDS = range(10)
"""Of the runs that a law may be tuned on."""
HIDDEN_SEEDS = range(100, 110)
"""Of the runs that are looked at once, when the law is done: each changes the parameters of its scenario as well."""

GOODPUT = 0.94
"""On-time answers over min(offered, capacity) that A to H are to reach, each, as the mean of all seeds."""
FALSE_REJECTIONS = 0.02
"""The share of calls that may be refused at 0.7x load, scenario A."""
JUDGED = "ABCDEFGH"
"""The scenarios that the two targets above are about; the others are shown beside them."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A sort of call: its share of all calls, its service time (lognormal: mean in seconds, sd / mean)."""

    share: float = 1.0
    mean: float = 0.02
    cv: float = 0.5
    operation: str = ""


@dataclass(frozen=True, slots=True)
class Phase:
    """From `since` (s) on: Poisson arrivals of `load` x the capacity at first, so many workers, so slow each."""

    since: float
    load: float
    workers: int
    slowness: float = 1.0


@dataclass(frozen=True, slots=True)
class Stalls:
    """All work stands still, every so many seconds, for so long: a garbage collector, say."""

    every: float
    length: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """An open loop of callers before workers that serve a line, first come first served."""

    letter: str
    title: str
    phases: tuple[Phase, ...]
    kinds: tuple[Kind, ...] = (Kind(),)
    deadline: float = 1.0
    """Seconds from a caller's first try after which the answer is of no use."""
    measured: float = 20.0
    """Seconds from the start: what happens before is not counted."""
    seconds: float = 60.0
    retries: int = 0
    """How often a refused caller tries again, each time after 50 to 150 ms."""
    stalls: Stalls | None = None

    @property
    def workers(self) -> int:
        return self.phases[0].workers

    @property
    def service(self) -> float:
        """The mean service time at first, in seconds."""
        return sum(kind.share * kind.mean for kind in self.kinds)

    def rate(self, phase: Phase) -> float:
        """Calls per second that arrive, not counting retries."""
        return phase.load * self.workers / self.service

    def capacity(self, phase: Phase) -> float:
        """Calls per second that all workers serve; stalls are not taken off."""
        return phase.workers / (self.service * phase.slowness)

    def spans(self) -> Iterator[tuple[Phase, float]]:
        """Each phase, with how many of its seconds are measured."""
        ends = [phase.since for phase in self.phases[1:]] + [self.seconds]
        for phase, end in zip(self.phases, ends, strict=True):
            yield phase, max(0.0, end - max(phase.since, self.measured))


def jittered(scenario: Scenario, seed: int) -> Scenario:
    """The scenario with other numbers: load +-7 %, half to twice the workers, service x0.5..2.5 with CV 0.2..1.2."""
    random = Random(f"jitter {scenario.letter} {seed}")
    load, crowd, slow = random.uniform(0.93, 1.07), random.uniform(0.5, 2.0), random.uniform(0.5, 2.5)
    phases = [
        replace(each, load=each.load * load, workers=max(1, round(each.workers * crowd))) for each in scenario.phases
    ]
    kinds = [replace(each, mean=each.mean * slow, cv=random.uniform(0.2, 1.2)) for each in scenario.kinds]
    return replace(scenario, phases=tuple(phases), kinds=tuple(kinds), deadline=scenario.deadline * max(1.0, slow))


def _steady(load: float, workers: int = 20) -> tuple[Phase, ...]:
    return (Phase(0.0, load, workers),)


def _ramp(workers: int, first: float, last: float, seconds: float, step: float = 10.0) -> tuple[Phase, ...]:
    steps = round(seconds / step)
    return tuple(Phase(k * step, first + (last - first) * k / (steps - 1), workers) for k in range(steps))


_ALL = (
    Scenario("A", "0.7x load", _steady(0.7)),
    Scenario("B", "1.5x", _steady(1.5)),
    Scenario("C", "3x", _steady(3.0)),
    Scenario("D", "0.9x, then service time x3", (Phase(0, 0.9, 20), Phase(20, 0.9, 20, 3.0))),
    Scenario(
        "E",
        "80 % 5 ms and 20 % 80 ms, 1.5x",
        _steady(1.5),
        (Kind(0.8, 0.005, 0.5, "quick"), Kind(0.2, 0.08, 0.5, "slow")),
    ),
    Scenario(
        "F", "2 workers, 1 s service, 2x", _steady(2.0, 2), (Kind(mean=1.0),), deadline=6.0, measured=60, seconds=240
    ),
    Scenario("G", "100 workers, 0.9x, from a limit of 20", _steady(0.9, 100)),
    # A thousand workers are as many as there may be calls: nobody ever waits.
    Scenario("H", "900/s, nobody waits, service time x3", (Phase(0, 0.018, 1000), Phase(20, 0.018, 1000, 3.0))),
    Scenario(
        "I", "20, 10, 20, 30 workers", tuple(Phase(20 * k, 1.2, c) for k, c in enumerate((20, 10, 20, 30))), seconds=80
    ),
    Scenario("J", "0.7x, all stands still for 200 ms every 5 s", _steady(0.7), stalls=Stalls(5.0, 0.2)),
    Scenario(
        "K",
        "0.9x, 3x for 5 s, refused callers retry 3 times",
        (Phase(0, 0.9, 20), Phase(20, 3.0, 20), Phase(25, 0.9, 20)),
        retries=3,
    ),
    Scenario("L", "4 workers, 0.5x rising to 2x in 10 minutes", _ramp(4, 0.5, 2.0, 600), measured=0, seconds=600),
    Scenario("M", "10 workers, 1.5x for 5 minutes", _steady(1.5, 10), measured=60, seconds=300),
    Scenario(
        "N",
        "0.5 calls/s: 1 worker, 4 s service, 2x",
        _steady(2.0, 1),
        (Kind(mean=4.0),),
        deadline=20.0,
        measured=300,
        seconds=1800,
    ),
    Scenario(
        "O",
        "5 calls/s: 7 workers, 1 s service, 0.7x",
        _steady(0.7, 7),
        (Kind(mean=1.0),),
        deadline=6.0,
        measured=60,
        seconds=300,
    ),
)

SCENARIOS = {each.letter: each for each in _ALL}
