"""One host of a fleet: a process with a limiter of its own, and threads that call it on schedule and log what they saw.

The calls are open-loop: each is due at an instant of its own, however slow the ones before it were, and a thread that
lags calls at once. A thread wakes at most once a TICK and then makes every call that is due: to wake for each one
would cost the machine more than the calls do.
"""

import random
import signal
import threading
import time
from array import array
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from ctypes import Array, c_double
from dataclasses import dataclass
from multiprocessing.connection import Connection

from batchlimit import BatchLimitError, RateLimiter
from batchlimit.cli.plan import Plan

TICK = 0.001
SPELL = 0.01
"""How finely a host notes when it was asked for how much, in seconds."""
PUBLISHING = 0.15
"""How often a host tells its counters to whoever watches, in seconds."""
COUNTERS = 3
"""The numbers that a host publishes: decisions admitted, decisions refused, store calls."""

# Calls that a thread makes before it looks at the clock again: few enough to end a phase in time.
_MOST_AT_ONCE = 16
# A thread with nothing to do for long still looks now and then whether it should stop.
_LONGEST_SLEEP = 0.2


@dataclass(slots=True)
class HostLog:
    """What a host saw. Instants are seconds on the monotonic clock, which all processes of a machine share."""

    admitted: "array[float]"
    """Before and after each call that was admitted, in turn."""
    refused: "array[float]"
    """How long each call took that was refused."""
    offered: "array[int]"
    """How many calls were made in each SPELL since the start."""
    ended: float
    """After the last call."""
    calls: int
    """Store calls by the limiter's own count, before it was closed."""


class Caller:
    """One thread's calls and its log of them; nothing in here is shared while it runs."""

    __slots__ = ("_cost", "_key", "_limiter", "_phases", "_start", "_stop", "admitted", "ended", "offered", "refused")

    def __init__(self, limiter: RateLimiter, plan: Plan, number: int, start: float, stop: threading.Event) -> None:
        self._limiter, self._key, self._cost = limiter, plan.key, plan.cost
        self._start, self._stop = start, stop
        self._phases = list(_schedule(plan, number, start))
        self.admitted = array("d")
        self.refused = array("d")
        self.offered = array("q", bytes(8 * (int(plan.seconds / SPELL) + 1)))
        self.ended = start

    def run(self) -> None:
        """Make all calls of the plan that the machine can carry in its time, or until told to stop."""
        time.sleep(max(0.0, self._start - time.monotonic()))
        for begin, end, rate, offset in self._phases:
            self._keep_up(begin, end, rate, offset)
        self.ended = time.monotonic()

    def _keep_up(self, begin: float, end: float, rate: float, offset: float) -> None:
        made = 0
        while (now := time.monotonic()) < end and not self._stop.is_set():
            due = min(int((now - begin) * rate + offset) - made, _MOST_AT_ONCE)
            if due > 0:
                self.offered[int((now - self._start) / SPELL)] += due
                self._call(due)
                made += due
            else:
                next_due = begin + (made + 1 - offset) / rate if rate else end
                time.sleep(min(max(next_due - now, TICK), max(end - now, 0.0), _LONGEST_SLEEP))

    def _call(self, times: int) -> None:
        clock, try_acquire, key, cost = time.monotonic, self._limiter.try_acquire, self._key, self._cost
        for _ in range(times):
            before = clock()
            if try_acquire(key, cost):
                # Both at once, so that a reader who counts never sees half a call.
                self.admitted.extend((before, clock()))
            else:
                self.refused.append(clock() - before)


def _schedule(plan: Plan, number: int, start: float) -> Iterator[tuple[float, float, float, float]]:
    """Each phase of one thread: begin, end, calls/s, and what part of a call is already due at its begin."""
    offset = random.Random(f"{plan.seed} {number}").random()
    begins = [0.0, *plan.ends]
    for phase, begin, end in zip(plan.phases, begins, plan.ends, strict=False):
        yield start + begin, start + end, phase.rate / (plan.hosts * plan.threads), offset


def run_host(link: Connection, board: Array[c_double], host: int, plan: Plan) -> None:
    """The body of a host's process: says that it is ready, hears when to start, runs, and sends its HostLog.

    If it has to give up, it sends a str that says why. Whatever else comes through the link, its end too, means: stop.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the parent's to handle, which then ends the link
    try:
        with RateLimiter.from_url(plan.url, plan.quota, prefix=plan.prefix) as limiter:
            link.send("")
            log = _run(limiter, link, board, host, plan)
        link.send(log)  # after the limiter was closed: what it gave back is on the server's count by then
    except (EOFError, BrokenPipeError):
        return  # nobody listens any more
    except (BatchLimitError, ValueError) as error:
        link.send(f"{type(error).__name__}: {error}")


def _run(limiter: RateLimiter, link: Connection, board: Array[c_double], host: int, plan: Plan) -> HostLog:
    start, stop = link.recv(), threading.Event()
    callers = [Caller(limiter, plan, host * plan.threads + thread, start, stop) for thread in range(plan.threads)]
    with ThreadPoolExecutor(plan.threads) as pool:
        running = [pool.submit(caller.run) for caller in callers]
        try:
            while not link.poll() and _going_on(running):
                _publish(limiter, callers, board, host)
        finally:
            stop.set()
    for future in running:
        future.result()
    _publish(limiter, callers, board, host)
    return _merged(callers, limiter.statistics().calls)


def _going_on(running: list[Future[None]]) -> bool:
    """Wait a little, or until it is over because all have finished or one has failed."""
    done, not_done = wait(running, PUBLISHING, FIRST_EXCEPTION)
    return bool(not_done) and not any(future.exception() for future in done)


def _publish(limiter: RateLimiter, callers: list[Caller], board: Array[c_double], host: int) -> None:
    admitted = sum(len(caller.admitted) // 2 for caller in callers)
    refused = sum(len(caller.refused) for caller in callers)
    board[host * COUNTERS : (host + 1) * COUNTERS] = [admitted, refused, limiter.statistics().calls]


def _merged(callers: list[Caller], calls: int) -> HostLog:
    log = HostLog(array("d"), array("d"), array("q"), max(caller.ended for caller in callers), calls)
    for caller in callers:
        log.admitted.extend(caller.admitted)
        log.refused.extend(caller.refused)
    log.offered.extend(sum(spell) for spell in zip(*(caller.offered for caller in callers), strict=True))
    return log
