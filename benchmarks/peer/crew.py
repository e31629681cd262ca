"""Client processes that live as long as the benchmark, and carry out one job after the other."""

import multiprocessing
import signal
import time
import traceback
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from benchmarks.peer.tally import Ready

Outcome_co = TypeVar("Outcome_co", covariant=True)
Outcome = TypeVar("Outcome")

_HEAD_START = 0.02
"""Seconds in which every process hears when to begin."""
_ENDING = 5.0


class Job(Protocol[Outcome_co]):
    """What a process does: sets everything up, says that it is ready, begins when told, and returns what came of it."""

    def __call__(self, ready: Ready) -> Outcome_co: ...


class Crew:
    """So many processes, for as long as the `with` lasts. Spawned: they share nothing but the server."""

    def __init__(self, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._links, self._processes = [], []
        for number in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), name=f"client-{number}", daemon=True)
            process.start()
            theirs.close()
            self._links.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for link in self._links:
            link.close()  # which tells its process to end
        for process in self._processes:
            process.join(_ENDING if kind is None else 0.0)
            if process.is_alive():
                process.kill()
                process.join()

    def run(self, job: Job[Outcome], processes: int = 1, warm_up: float = 0.0) -> list[Outcome]:
        """Let so many processes do this job at the same time; RuntimeError with the trace of one that could not.

        They begin `warm_up` seconds after the last of them is ready.
        """
        links = self._links[:processes]
        for link in links:
            link.send(job)
        for link in links:
            _hear(link)
        start = time.monotonic() + _HEAD_START + warm_up
        for link in links:
            link.send(start)
        return [_hear(link) for link in links]


def _hear(link: Connection) -> Any:
    told, failed = link.recv()
    if failed:
        raise RuntimeError(failed)
    return told


def _serve(link: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is heard by who gives the orders

    def ready() -> float:
        link.send((None, ""))
        return float(link.recv())

    while True:
        try:
            job = link.recv()
        except EOFError:
            return
        try:
            link.send((job(ready), ""))
        except BaseException:
            link.send((None, traceback.format_exc()))
            raise
