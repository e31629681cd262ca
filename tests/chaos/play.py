"""How a scenario is played: the hosts call all the time, and in the middle of it the fault comes and goes."""

import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tests.chaos.calls import Call, read
from tests.chaos.row import Row, Times, row
from tests.chaos.scenario import DEMAND, KEYS, QUOTA, Scenario
from tests.chaos.stage import Stage
from tests.chaos.task import COSTS, Task

# Time enough for all hosts to hear when to begin.
_HEAD_START = 0.1


@dataclass(frozen=True, slots=True)
class Lengths:
    """Seconds of load before and after the fault: until the buckets are dry, and until the store is asked again."""

    before: float
    after: float


LONG = Lengths(1.0, 2.5)
SHORT = Lengths(0.5, 0.8)
SHORT_OF_OTHERS = Lengths(0.5, 2.0)
"""Where hosts admit by themselves, each goes on with that for a while after its probe came through."""


def play(scenario: Scenario, stage: Stage, lengths: Lengths, kept: str = "") -> Row:
    """Play it once. With a name in `kept` the hosts use the limiters of that name, and let them live on."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic() + _HEAD_START
        end = start + lengths.before + scenario.seconds + lengths.after
        stage.tasks = tuple(_tasks(scenario, stage, folder, start, end, kept))
        for host, task in enumerate(stage.tasks):
            stage.crew.give(host, task)
        try:
            _sleep_until(start + lengths.before)
            began = time.monotonic()
            with scenario.fault(stage):
                _sleep_until(began + scenario.seconds)
            over = time.monotonic()
        finally:  # or the next one to play would have busy hosts
            ended = stage.crew.hear()
        return row(scenario, list(_calls(folder, stage)), Times(began, over, end), ended)


def _tasks(scenario: Scenario, stage: Stage, folder: str, start: float, end: float, kept: str) -> Iterator[Task]:
    # What is kept has a bucket for each kind of limiter: a host is not to count as two.
    prefix = f"{kept or uuid.uuid4().hex}-{scenario.policy}-{scenario.front}-{scenario.relayed}"
    rate = DEMAND * scenario.rate / scenario.hosts * len(COSTS) / sum(COSTS)
    for host in range(scenario.hosts):
        yield Task(
            url=stage.relayed_url if scenario.relayed else stage.url,
            quota=QUOTA,
            prefix=prefix,
            keys=KEYS,
            callers=scenario.callers,
            rate=rate,
            start=start,
            end=end,
            front=scenario.front,
            options=(("on_failure", scenario.policy),),
            log=f"{folder}/{host}",
            kept=bool(kept),
        )


def _calls(folder: str, stage: Stage) -> Iterator[Call]:
    """What all hosts wrote down; one that took another's place is a host of its own."""
    hosts = len(stage.tasks)
    logs = [
        (read(Path(f"{folder}/{host}"), host), read(Path(f"{folder}/{host}-again"), hosts + host))
        for host in range(hosts)
    ]
    return chain.from_iterable(chain.from_iterable(logs))


def _sleep_until(instant: float) -> None:
    time.sleep(max(0.0, instant - time.monotonic()))
