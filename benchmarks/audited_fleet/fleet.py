"""A fleet: the processes that carry out a plan together, on one machine and its one clock."""

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Self

from benchmarks.audited_fleet.instance import COUNTERS, InstanceLog
from benchmarks.audited_fleet.plan import Plan
from benchmarks.audited_fleet.process import run_process

# Seconds from the last process's readiness to the start, so that every process learns the instant in time.
_HEAD_START = 0.1
_LOOKING = 0.2
# Seconds after which a process that has not started or ended counts as hung.
_PATIENCE = 60.0
_ENDING = 5.0


class FleetError(Exception):
    """A process failed or vanished: its log is missing, so the run cannot be judged."""


@dataclass(frozen=True, slots=True)
class Row:
    """One process's counters while it runs: decisions, and store calls by its limiter's count."""

    admitted: int
    refused: int
    calls: int


@dataclass(frozen=True, slots=True)
class FleetLog:
    """The logs of all processes, and when they started (seconds of the monotonic clock)."""

    start: float
    processes: list[InstanceLog]


Watcher = Callable[[float, list[Row]], None]
"""Called about five times a second with the seconds since the start and a row for each process."""


def unwatched(elapsed: float, rows: list[Row]) -> None:
    """A Watcher that ignores everything."""


class Fleet:
    """Starts the processes of a plan on entering, and ends all of them on leaving."""

    __slots__ = ("_board", "_context", "_links", "_plan", "_processes")

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        # Spawned, not forked: a new interpreter shares nothing with its siblings, as on another machine.
        self._context = multiprocessing.get_context("spawn")
        self._board = self._context.RawArray("d", plan.processes * COUNTERS)
        self._processes: list[multiprocessing.process.BaseProcess] = []
        self._links: list[Connection] = []

    def __enter__(self) -> Self:
        try:
            with _interrupts_later():
                for number in range(self._plan.processes):
                    self._start(number)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def run(self, watch: Watcher) -> FleetLog:
        """Wait until every process is ready, let all start at one instant, and return their logs.

        Raises:
            FleetError: a process cannot go on.
        """
        self._hear(time.monotonic() + _PATIENCE, lambda: None)
        start = time.monotonic() + _HEAD_START
        for link in self._links:
            link.send(start)
        logs = self._hear(
            start + self._plan.seconds + _PATIENCE, lambda: watch(max(0.0, time.monotonic() - start), self._rows())
        )
        return FleetLog(start, [log for log in logs if isinstance(log, InstanceLog)])

    def _start(self, number: int) -> None:
        ours, theirs = self._context.Pipe()
        self._links.append(ours)
        process = self._context.Process(
            target=run_process,
            args=(theirs, self._board, number, self._plan),
            name=f"batchlimit-fleet-{number}",
            daemon=True,
        )
        self._processes.append(process)
        process.start()
        theirs.close()  # otherwise the link would stay open after the process has ended

    def _hear(self, deadline: float, look: Callable[[], None]) -> list[InstanceLog | str]:
        """Return one message from each process, in the order of the processes."""
        heard: dict[int, InstanceLog | str] = {}
        while len(heard) < len(self._links):
            awaited = [link for number, link in enumerate(self._links) if number not in heard]
            for link in wait(awaited, _LOOKING):
                assert isinstance(link, Connection)
                number = self._links.index(link)
                heard[number] = _message(link, number)
            if time.monotonic() > deadline:
                raise FleetError(f"{len(awaited)} of {len(self._links)} processes did not answer in time")
            look()
        return [heard[number] for number in range(len(self._links))]

    def _rows(self) -> list[Row]:
        counters = [int(counter) for counter in self._board]
        return [Row(*counters[first : first + COUNTERS]) for first in range(0, len(counters), COUNTERS)]

    def _end(self) -> None:
        for link in self._links:
            link.close()  # this tells the process to stop
        for process in self._processes:
            if process.pid is not None:
                _end_process(process)


def _message(link: Connection, number: int) -> InstanceLog | str:
    try:
        message: InstanceLog | str = link.recv()
    except (EOFError, ConnectionError):
        raise FleetError(f"process {number} vanished") from None
    if isinstance(message, str) and message:
        raise FleetError(f"process {number} gave up: {message}")
    return message


def _end_process(process: multiprocessing.process.BaseProcess) -> None:
    process.join(_ENDING)
    if process.is_alive():
        process.kill()
        process.join()
    process.close()


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Delay a Ctrl-C until the end of the block. Children inherit this, so their first imports show no traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
