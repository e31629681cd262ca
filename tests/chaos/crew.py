"""The processes of the chaos runs: started once, given tasks, stopped, killed and replaced."""

import multiprocessing
import os
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Self

from tests.chaos.task import Ended, Task
from tests.chaos.worker import serve

# A process that is this late hangs: seconds.
_PATIENCE = 60.0


class Hung(Exception):
    """A process did not answer in time."""


@dataclass(slots=True)
class _Member:
    process: BaseProcess
    link: Connection
    busy: bool = True
    """Whether it will send a message: at first, that it is ready."""


class Crew:
    """A number of processes, and one in reserve that takes the place of one that is killed."""

    def __init__(self, processes: int) -> None:
        # Spawned, not forked: a new interpreter shares nothing with its siblings, as on another machine.
        self._context = multiprocessing.get_context("spawn")
        self._processes = processes
        self._members: list[_Member] = []

    def __enter__(self) -> Self:
        try:
            for _ in range(self._processes + 1):
                self._members.append(self._start())
            self.hear()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def pids(self) -> list[int]:
        """The process ids of the crew, without the one in reserve."""
        return [member.process.pid or 0 for member in self._members[:-1]]

    def give(self, number: int, task: Task) -> None:
        """Let a process carry out a task."""
        self._members[number].link.send(task)
        self._members[number].busy = True

    def signal(self, number: int, which: int) -> None:
        """Send a signal to a process."""
        os.kill(self.pids[number], which)

    def replace(self, number: int, task: Task) -> None:
        """Kill a process; the one in reserve takes its place and this task, and another one is started."""
        lost = self._members[number]
        _end(lost)
        self._members[number] = self._members.pop()
        self.give(number, task)
        self._members.append(self._start())

    def hear(self) -> list[Ended]:
        """Return what ended the tasks; by then whoever is new is ready too."""
        return [ended for member in self._members if member.busy and (ended := _hear(member)) is not None]

    def _start(self) -> _Member:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()  # or the end of the process would not be the end of the link
        return _Member(process, ours)

    def _end(self) -> None:
        for member in self._members:
            member.link.close()  # which is what tells a process to stop
        for member in self._members:
            member.process.join(5.0)
            _end(member)


def _hear(member: _Member) -> Ended | None:
    if not member.link.poll(_PATIENCE):
        raise Hung(f"process {member.process.pid} did not answer within {_PATIENCE:g} s")
    member.busy = False
    ended: Ended | None = member.link.recv()
    return ended


def _end(member: _Member) -> None:
    if member.process.is_alive():
        member.process.kill()
    member.process.join()
    member.link.close()
