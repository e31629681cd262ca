"""A fleet: the processes that carry out a plan together, each a host of its own, all on this machine's one clock."""

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Self

from batchlimit.fleet.instance import COUNTERS, InstanceLog
from batchlimit.fleet.plan import Plan
from batchlimit.fleet.process import run_host

# From the last host's readiness to the start: long enough that every host has heard the instant.
_HEAD_START = 0.1
_LOOKING = 0.2
# A host that is this late, to start or to end, hangs: seconds.
_PATIENCE = 60.0
_ENDING = 5.0


class FleetError(Exception):
    """A host gave up or vanished, so that its log is missing and nothing can be said about the run."""


@dataclass(frozen=True, slots=True)
class Row:
    """One host's counters while it runs: decisions, and store calls by the limiter's own count."""

    admitted: int
    refused: int
    calls: int


@dataclass(frozen=True, slots=True)
class FleetLog:
    """What the hosts saw, and when all of them started (monotonic clock, seconds)."""

    start: float
    hosts: list[InstanceLog]


Watcher = Callable[[float, list[Row]], None]
"""Called about five times a second with the seconds since the start and a row for each host."""


def unwatched(elapsed: float, rows: list[Row]) -> None:
    """A Watcher that looks away."""


class Fleet:
    """Starts the hosts of a plan on entering, and leaves none behind on leaving, however that comes about."""

    __slots__ = ("_board", "_context", "_links", "_plan", "_processes")

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        # Spawned, not forked: a new interpreter shares nothing with its siblings, as on another machine.
        self._context = multiprocessing.get_context("spawn")
        self._board = self._context.RawArray("d", plan.hosts * COUNTERS)
        self._processes: list[multiprocessing.process.BaseProcess] = []
        self._links: list[Connection] = []

    def __enter__(self) -> Self:
        try:
            with _interrupts_later():
                for host in range(self._plan.hosts):
                    self._start(host)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def run(self, watch: Watcher) -> FleetLog:
        """Wait until every host is ready, let all start at one instant, and return what they logged.

        Raises FleetError as soon as one of them cannot go on.
        """
        self._hear(time.monotonic() + _PATIENCE, lambda: None)
        start = time.monotonic() + _HEAD_START
        for link in self._links:
            link.send(start)
        logs = self._hear(
            start + self._plan.seconds + _PATIENCE, lambda: watch(max(0.0, time.monotonic() - start), self._rows())
        )
        return FleetLog(start, [log for log in logs if isinstance(log, InstanceLog)])

    def _start(self, host: int) -> None:
        ours, theirs = self._context.Pipe()
        self._links.append(ours)
        process = self._context.Process(
            target=run_host, args=(theirs, self._board, host, self._plan), name=f"batchlimit-host-{host}", daemon=True
        )
        self._processes.append(process)
        process.start()
        theirs.close()  # or the end of the process would not be the end of the link

    def _hear(self, deadline: float, look: Callable[[], None]) -> list[InstanceLog | str]:
        """One message from each host, in the order of the hosts."""
        heard: dict[int, InstanceLog | str] = {}
        while len(heard) < len(self._links):
            awaited = [link for host, link in enumerate(self._links) if host not in heard]
            for link in wait(awaited, _LOOKING):
                assert isinstance(link, Connection)
                host = self._links.index(link)
                heard[host] = _message(link, host)
            if time.monotonic() > deadline:
                raise FleetError(f"{len(awaited)} of {len(self._links)} hosts did not answer in time")
            look()
        return [heard[host] for host in range(len(self._links))]

    def _rows(self) -> list[Row]:
        counters = [int(counter) for counter in self._board]
        return [Row(*counters[first : first + COUNTERS]) for first in range(0, len(counters), COUNTERS)]

    def _end(self) -> None:
        for link in self._links:
            link.close()  # which is what tells a host to stop
        for process in self._processes:
            if process.pid is not None:
                _end_process(process)


def _message(link: Connection, host: int) -> InstanceLog | str:
    try:
        message: InstanceLog | str = link.recv()
    except (EOFError, ConnectionError):
        raise FleetError(f"host {host} vanished") from None
    if isinstance(message, str) and message:
        raise FleetError(f"host {host} gave up: {message}")
    return message


def _end_process(process: multiprocessing.process.BaseProcess) -> None:
    process.join(_ENDING)
    if process.is_alive():
        process.kill()
        process.join()
    process.close()


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """A Ctrl-C meanwhile is heard afterwards; a child inherits this, so that its first imports end in no traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
