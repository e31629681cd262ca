"""Processes that run one plan of callers, and what came of it."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.shared_permits.log import SECOND, Hold, read

_ROOT = Path(__file__).parents[2]
UrlOf = Callable[[int], str]
"""Returns the URL by which a process of that number reaches the store."""


@dataclass(frozen=True, slots=True)
class Report:
    """What all processes together tell: how often they asked the store, and the processor time they took (s)."""

    asks: int
    processor: float


@dataclass(slots=True)
class Crew:
    """Processes that run one plan on one store."""

    url_of: UrlOf
    folder: Path
    plan: dict[str, Any]
    weights: tuple[int, ...] = ()
    workers: list["subprocess.Popen[str]"] = field(default_factory=list)
    ended: dict[int, int] = field(default_factory=dict)
    until: int = 0
    _at_work: int = 0

    def hire(self, count: int) -> None:
        """Start so many processes more."""
        for _ in range(count):
            number = len(self.workers)
            weight = self.weights[number % len(self.weights)] if self.weights else 1
            plan = {**self.plan, "url": self.url_of(number), "log": str(self.log(number)), "weight": weight}
            command = [sys.executable, "-m", "benchmarks.shared_permits.worker", json.dumps(plan)]
            self.workers.append(
                subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )

    def begin(self, seconds: float) -> None:
        """Let all that are hired work for so long, or as long as those before them; they begin together."""
        new = self.workers[self._at_work :]
        for worker in new:
            assert worker.stdout
            worker.stdout.readline()
        self.until = self.until or time.monotonic_ns() + int(seconds * SECOND)
        for worker in new:
            assert worker.stdin
            worker.stdin.write(f"{self.until}\n")
            worker.stdin.flush()
        self._at_work = len(self.workers)

    def signal(self, number: int, which: int) -> None:
        """Send a signal to a process."""
        os.kill(self.workers[number].pid, which)

    def kill(self, number: int) -> None:
        """End a process by SIGKILL."""
        worker = self.workers[number]
        worker.kill()
        worker.wait()
        self.ended[number] = time.monotonic_ns()

    def end(self) -> None:
        """End all that still run: something failed."""
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
                worker.wait()

    def finish(self) -> Report:
        """Wait for all."""
        asks, processor = 0, 0.0
        for number, worker in enumerate(self.workers):
            out, _ = worker.communicate(timeout=120)
            if number not in self.ended:
                told = json.loads(out)
                asks, processor = asks + told["asks"], processor + told["processor"]
        return Report(asks, processor)

    def log(self, number: int) -> Path:
        """The file into which a process writes its holds."""
        return self.folder / f"{number}.log"

    def holds(self) -> list[list[Hold]]:
        """Return what each process logged."""
        now = time.monotonic_ns()
        logs = [(self.log(number), self.ended.get(number, now)) for number in range(len(self.workers))]
        return [list(read(log, killed)) if log.exists() else [] for log, killed in logs]


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a crew.

    Attributes:
        by_process: The holds of each process.
        asks: How often they asked the store.
        processor: The processor time that they took (s), from when they began to work.
        began, until: From when to when all were at work (ns).
        fault: When the fault began and ended (ns).
    """

    by_process: list[list[Hold]]
    asks: int
    processor: float
    began: int
    until: int
    fault: tuple[int, int]

    @property
    def holds(self) -> list[Hold]:
        """The holds of all processes."""
        return [hold for each in self.by_process for hold in each]

    @property
    def shares(self) -> list[int]:
        """How many permits each process got."""
        return [len(each) for each in self.by_process]


_SETTLED = SECOND // 2
"""After so long every process has connected (ns)."""
_LAST = SECOND // 5
"""The last of a run is not counted: callers end one by one (ns)."""


def run(
    url_of: UrlOf | str,
    processes: int,
    seconds: float,
    meanwhile: Callable[[Crew], tuple[int, int]] | None = None,
    *,
    weights: tuple[int, ...] = (),
    **plan: Any,
) -> Run:
    """Run a crew on an empty store; `meanwhile` does something to it, and returns when that began and ended (ns)."""
    find = (lambda _: url_of) if isinstance(url_of, str) else url_of
    with tempfile.TemporaryDirectory() as folder:
        crew = Crew(find, Path(folder), plan, weights)
        try:
            crew.hire(processes)
            crew.begin(seconds)
            began, until = time.monotonic_ns() + _SETTLED, crew.until - _LAST
            fault = began, began
            if meanwhile is not None:
                time.sleep(_SETTLED / SECOND)
                fault = meanwhile(crew)
            report = crew.finish()
        finally:
            crew.end()
        return Run(crew.holds(), report.asks, report.processor, began, until, fault)
