"""How a scenario is played: the processes call all the time, and in the middle of it the fault comes and goes."""

import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from batchlimit import FailurePolicy
from tests.chaos.calls import Call, read
from tests.chaos.row import STEADY, Row, Times, recovery, row
from tests.chaos.scenario import DEMAND, KEYS, QUOTA, Scenario
from tests.chaos.stage import Stage
from tests.chaos.task import COSTS, Task

# Time enough for all processes to hear when to begin.
_HEAD_START = 0.1
_LOOKING = 0.1
# A process that was not served by then never is (s).
_PATIENCE = 20.0
_ENOUGH = "enough"


@dataclass(frozen=True, slots=True)
class Lengths:
    """Seconds of load before the fault, and at the least after it: until the buckets are dry, and full again."""

    before: float
    after: float


LONG = Lengths(1.0, 1.0)
SHORT = Lengths(0.5, 0.3)


def play(scenario: Scenario, stage: Stage, lengths: Lengths, kept: str = "") -> Row:
    """Play it once. With a name in `kept` the processes use the limiters of that name, and let them live on."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic() + _HEAD_START
        stage.tasks = tuple(_tasks(scenario, stage, folder, start, kept))
        for process, task in enumerate(stage.tasks):
            stage.crew.give(process, task)
        try:
            _sleep_until(start + lengths.before)
            _await_service(folder, stage, start)
            began = time.monotonic()
            with scenario.fault(stage):
                _sleep_until(began + scenario.seconds)
            over = time.monotonic()
            _sleep_until(over + lengths.after)
            _await_service(folder, stage, over)
        finally:  # or the next one to play would have busy processes
            Path(folder, _ENOUGH).touch()
            ended = stage.crew.hear()
        return row(scenario, _calls(folder, stage), Times(began, over), ended)


def _await_service(folder: str, stage: Stage, since: float) -> None:
    """Return when all processes were served since then, as their callers logged; or after some time of waiting."""
    while (now := time.monotonic()) < since + _PATIENCE:
        if now > since + recovery(_calls(folder, stage), since) + STEADY:
            return
        time.sleep(_LOOKING)


def _tasks(scenario: Scenario, stage: Stage, folder: str, start: float, kept: str) -> Iterator[Task]:
    # What is kept has a bucket for each kind of limiter: a process is not to count as two.
    prefix = f"{kept or uuid.uuid4().hex}-{scenario.policy}-{scenario.api}-{scenario.relayed}"
    rate = DEMAND * scenario.rate / scenario.processes * len(COSTS) / sum(COSTS)
    for process in range(scenario.processes):
        yield Task(
            url=stage.url_of(process, scenario.relayed),
            quota=QUOTA,
            prefix=prefix,
            keys=KEYS,
            callers=scenario.callers,
            rate=rate,
            start=start,
            end=start + scenario.seconds + 3 * _PATIENCE,
            enough=f"{folder}/{_ENOUGH}",
            api=scenario.api,
            options=(("on_failure", _on_failure(scenario)),),
            log=f"{folder}/{process}",
            kept=bool(kept),
        )


def _on_failure(scenario: Scenario) -> str | FailurePolicy:
    return FailurePolicy.local(scenario.processes) if scenario.policy == "local" else scenario.policy


def _calls(folder: str, stage: Stage) -> list[Call]:
    """What all processes wrote down; one that took another's place is a process of its own."""
    processes = len(stage.tasks)
    first = [read(Path(f"{folder}/{process}"), process) for process in range(processes)]
    again = [read(Path(f"{folder}/{process}-again"), processes + process) for process in range(processes)]
    return list(chain.from_iterable([*first, *again]))


def _sleep_until(instant: float) -> None:
    time.sleep(max(0.0, instant - time.monotonic()))
