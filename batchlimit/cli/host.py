"""One host of a fleet: a process with a limiter of its own, and threads that call it and log what they saw."""

import os
import signal
import threading
import time
from array import array
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import closing
from ctypes import Array, c_double
from dataclasses import dataclass
from multiprocessing.connection import Connection

from batchlimit import BatchLimitError
from batchlimit.cli.caller import Caller, CallLog
from batchlimit.cli.limiter import Limiter
from batchlimit.cli.plan import Plan

PUBLISHING = 0.15
"""How often a host tells its counters to whoever watches, in seconds."""
COUNTERS = 3
"""The numbers that a host publishes: decisions admitted, decisions refused, store calls."""


@dataclass(slots=True)
class HostLog:
    """What a host saw. Instants are seconds on the monotonic clock, which all processes of a machine share."""

    admitted: CallLog
    refused: CallLog
    offered: "array[int]"
    """How many tokens were asked for in each SPELL since the start."""
    ended: float
    """After the last call."""
    calls: int
    """Store calls by the limiter's own count, before it was closed."""


def run_host(link: Connection, board: Array[c_double], host: int, plan: Plan) -> None:
    """The body of a host's process: says that it is ready, hears when to start, runs, and sends its HostLog.

    If it has to give up, it sends a str that says why. Whatever else comes through the link, its end too, means: stop.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the parent's to handle, which then ends the link
    try:
        link.send("")
        start = link.recv()
        if link.poll(max(0.0, start + plan.stay(host)[0] - time.monotonic())):
            return
        # Only now: a host that joins late makes its limiter late too.
        with closing(plan.limiter(plan)) as limiter:
            log = _run(limiter, link, board, host, plan, start)
            if plan.vanishes(host):
                link.send(log)
                os._exit(0)  # as if killed: what it has leased goes with it
        link.send(log)  # after the limiter was closed: what it gave back is on the server's count by then
    except (EOFError, BrokenPipeError):
        return  # nobody listens any more
    except (BatchLimitError, ValueError) as error:
        link.send(f"{type(error).__name__}: {error}")


def _run(limiter: Limiter, link: Connection, board: Array[c_double], host: int, plan: Plan, start: float) -> HostLog:
    stop = threading.Event()
    callers = [Caller(limiter, plan, host, thread, start, stop) for thread in range(plan.threads)]
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


def _publish(limiter: Limiter, callers: list[Caller], board: Array[c_double], host: int) -> None:
    admitted = sum(len(caller.admitted) for caller in callers)
    refused = sum(len(caller.refused) for caller in callers)
    board[host * COUNTERS : (host + 1) * COUNTERS] = [admitted, refused, limiter.statistics().calls]


def _merged(callers: list[Caller], calls: int) -> HostLog:
    log = HostLog(CallLog(), CallLog(), array("q"), max(caller.ended for caller in callers), calls)
    for caller in callers:
        log.admitted.extend(caller.admitted)
        log.refused.extend(caller.refused)
    log.offered.extend(sum(spell) for spell in zip(*(caller.offered for caller in callers), strict=True))
    return log
