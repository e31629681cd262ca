"""What may be chosen where not all can be had at once: the choices, and the servers that they are tried at, as data."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from batchlimit.concurrency.law import Law
from batchlimit.concurrency.laws import AIMD, Fixed, Gradient2, Knee, Periodic, Vegas, Windowed
from batchlimit.concurrency.queue import Queue
from benchmarks.queueing.fleet.scenario import SCENARIOS, FleetScenario, Member

OURS = "Knee"
SECONDS = 300.0
"""Of a run of a fleet; the runs of one limiter have a length of their own, 2 minutes."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A law, and perhaps a queue; a line joins those of a family, in their order."""

    family: str
    label: str
    law: Callable[[], Law]
    queue: Queue | None = None
    """Instead of the queue of the scenario."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A figure of a run, by its name."""

    figure: str
    title: str
    in_ms: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """Panels, one for each scenario; all choices in each."""

    name: str
    across: Axis
    up: Axis
    panels: tuple[FleetScenario, ...]
    choices: tuple[Choice, ...]


def _knees(*tolerances: float) -> Iterator[Choice]:
    for each in tolerances:
        label = "Knee()" if each == 1.3 else f"tolerance={each:g}"
        yield Choice(OURS, label, lambda each=each: Knee(tolerance=each))  # type: ignore[misc]


def _fixed(*limits: int) -> Iterator[Choice]:
    for each in limits:
        yield Choice("fixed limit", str(each), lambda each=each: Fixed(each))  # type: ignore[misc]


def _aimds(*timeouts: float) -> Iterator[Choice]:
    for each in timeouts:
        law = lambda each=each: AIMD(timeout=each, minimum=1)  # noqa: E731
        yield Choice("AIMD, by timeout", f"{each * 1000:g} ms", law)


_OTHERS = (
    Choice("other laws", "Periodic AIMD, 200 ms", lambda: Periodic(AIMD(timeout=0.2, minimum=1))),
    Choice("other laws", "Vegas", Vegas),
    Choice("other laws", "Windowed Vegas", lambda: Windowed(Vegas())),
    Choice("other laws", "Windowed Gradient2", lambda: Windowed(Gradient2(minimum=1))),
)


def _fleets() -> Iterator[FleetScenario]:
    for count in (8, 20):
        yield replace(SCENARIOS[f"{count} at 2x"], seconds=SECONDS)
        apart = tuple(Member(skew=37.3 * place) for place in range(count))
        name = f"{count} at 2x, clocks apart"
        yield replace(SCENARIOS[f"{count} at 2x"], name=name, members=apart, seconds=SECONDS)


def _waits() -> Iterator[Choice]:
    for each in (0.05, 0.1, 0.2, 0.5):
        yield Choice("Knee and a queue", f"{each * 1000:g} ms", Knee, Queue(1000, max_wait=each))


_TAIL = "alone: 1 % of 2 s, 99 % of 5 ms, {}, 1.5x"

PLOTS = (
    Plot(
        "tradeoff-fairness",
        Axis("goodput", "answers in time over those of the best limiter"),
        Axis("fairness", "poorest over richest"),
        tuple(_fleets()),
        (
            *_fixed(1, 2, 5, 10, 25),
            *_aimds(0.1, 0.2, 0.4, 0.8),
            *_OTHERS,
            Choice("Knee, by maximum", "maximum=2", lambda: Knee(maximum=2)),
            Choice("Knee, by maximum", "maximum=5", lambda: Knee(maximum=5)),
            *_knees(1.3),
        ),
    ),
    Plot(
        "tradeoff-tail",
        Axis("p50", "half of the answers took less than, ms", in_ms=True),
        Axis("goodput", "answers in time over those of the best limiter"),
        (SCENARIOS[_TAIL.format("unnamed")], SCENARIOS[_TAIL.format("named")]),
        (
            *_fixed(20, 40, 100),
            *_aimds(0.2, 0.5),
            *_OTHERS,
            *_knees(1.3, 4.0, 8.0),
        ),
    ),
    Plot(
        "tradeoff-bursts",
        Axis("p99", "99 % of the answers took less than, ms", in_ms=True),
        Axis("false_refusals", "refused though the best limiter serves them"),
        (SCENARIOS["alone: 3x for 200 ms a second, no queue"],),
        (
            *_fixed(20, 40, 80, 160, 320, 640),
            *_aimds(0.05, 0.1, 0.2, 0.4),
            *_OTHERS,
            *_knees(1.3, 4.0),
            *_waits(),
        ),
    ),
)
