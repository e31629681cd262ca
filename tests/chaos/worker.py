"""A process of the chaos runs: carries out one task after the other; its callers are threads or tasks."""

import asyncio
import logging
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from multiprocessing.connection import Connection
from pathlib import Path

from batchlimit import AsyncRateLimiter, Decision, RateLimiter, StoreUnavailable
from benchmarks.audited_fleet.plan import Api
from tests.chaos.calls import Notebook, Outcome, Source
from tests.chaos.task import COSTS, Ended, Task, Usage
from tests.chaos.witness import Witness

_PAGE = os.sysconf("SC_PAGE_SIZE")
Answer = tuple[Outcome, Source]


def serve(link: Connection) -> None:
    """Say that it is ready; then hear a Task, do it, and send what Ended it, until the link is closed."""
    logging.getLogger("batchlimit").setLevel(logging.ERROR)  # that the store is away is no news here
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the parent's to handle, which then ends the link
    with asyncio.Runner() as runner:
        worker = Worker(runner)
        try:
            link.send(None)
            while True:
                link.send(worker.carry_out(link.recv()))
        except (EOFError, ConnectionError):
            worker.close()


class Worker:
    """The limiters of one process, and the event loop of those for tasks."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner, self._witness = runner, Witness()
        self._limiters: dict[object, RateLimiter | AsyncRateLimiter] = {}

    def carry_out(self, task: Task) -> Ended:
        """Make the task's limiter, or take the one there is, and have it called."""
        limiter = self._limiter(task)
        notebook = Notebook(task.log)
        if isinstance(limiter, RateLimiter):
            errors = _in_threads(limiter, task, notebook)
        else:
            errors = self._runner.run(_in_tasks(limiter, task, notebook))
        notebook.close()
        statistics = limiter.statistics()
        if not task.kept:
            self.close()
        told = Counter(f"{type(error).__name__}: {error}" for error in errors)
        return Ended(statistics, told, self._usage(), self._witness.take())

    def close(self) -> None:
        """Close all limiters."""
        for limiter in self._limiters.values():
            if isinstance(limiter, RateLimiter):
                limiter.close()
            else:
                self._runner.run(limiter.close())
        self._limiters.clear()

    def _limiter(self, task: Task) -> RateLimiter | AsyncRateLimiter:
        name = (task.url, task.quota, task.prefix, task.api, task.options)
        if name not in self._limiters:
            kind = AsyncRateLimiter if task.api is Api.ASYNC else RateLimiter
            self._limiters[name] = kind.from_url(task.url, task.quota, prefix=task.prefix, **dict(task.options))
        return self._limiters[name]

    def _usage(self) -> Usage:
        tasks = len(asyncio.all_tasks(self._runner.get_loop()))
        own = Path("/proc/self")
        if not own.exists():
            return Usage(threading.active_count(), tasks, 0, 0)
        pages = int((own / "statm").read_text().split()[1])
        return Usage(threading.active_count(), tasks, len(os.listdir(own / "fd")), pages * _PAGE)


def _turns(task: Task, caller: int) -> Iterator[tuple[float, int, int]]:
    """When one caller calls, for which key, at what cost. A late caller makes up for it."""
    pace = task.callers / task.rate
    due = task.start + pace * caller / task.callers
    for turn, cost in enumerate(cycle(COSTS), caller):
        if due >= task.end:
            return
        yield due, turn % task.keys, cost
        due += pace


def _asks(caller: int) -> bool:
    """Whether a caller asks for a Decision: every other one does, the others call try_acquire."""
    return caller % 2 == 0


def _told(decision: Decision) -> Answer:
    return Outcome(decision.allowed), Source[decision.source.upper()]


def _in_threads(limiter: RateLimiter, task: Task, notebook: Notebook) -> list[BaseException]:
    def call(caller: int) -> None:
        for due, key, cost in _turns(task, caller):
            time.sleep(max(0.0, due - time.monotonic()))
            if task.is_over(before := time.monotonic()):
                return
            outcome, source = _answer(limiter, f"key-{key}", cost, _asks(caller))
            notebook.note(before, time.monotonic(), key, cost, outcome, source)

    with ThreadPoolExecutor(task.callers) as pool:
        running = [pool.submit(call, caller) for caller in range(task.callers)]
    return [error for each in running if (error := each.exception()) is not None]


def _answer(limiter: RateLimiter, key: str, cost: int, asks: bool) -> Answer:
    try:
        if asks:
            return _told(limiter.decide(key, cost))
        return Outcome(limiter.try_acquire(key, cost)), Source.UNKNOWN
    except StoreUnavailable:
        return Outcome.UNAVAILABLE, Source.UNKNOWN


async def _in_tasks(limiter: AsyncRateLimiter, task: Task, notebook: Notebook) -> list[BaseException]:
    async def call(caller: int) -> None:
        for due, key, cost in _turns(task, caller):
            await asyncio.sleep(due - time.monotonic())
            if task.is_over(before := time.monotonic()):
                return
            outcome, source = await _answer_awaited(limiter, f"key-{key}", cost, _asks(caller))
            notebook.note(before, time.monotonic(), key, cost, outcome, source)

    running = [call(caller) for caller in range(task.callers)]
    ended = await asyncio.gather(*running, return_exceptions=True)
    return [error for error in ended if error is not None]


async def _answer_awaited(limiter: AsyncRateLimiter, key: str, cost: int, asks: bool) -> Answer:
    try:
        if asks:
            return _told(await limiter.decide(key, cost))
        return Outcome(await limiter.try_acquire(key, cost)), Source.UNKNOWN
    except StoreUnavailable:
        return Outcome.UNAVAILABLE, Source.UNKNOWN
