"""The body of a host's process."""

import asyncio
import signal
import time
from ctypes import Array, c_double
from multiprocessing.connection import Connection

from batchlimit import BatchLimitError
from batchlimit.fleet import tasks, threads
from batchlimit.fleet.instance import Instance, InstanceLog
from batchlimit.fleet.plan import Front, Plan


def run_host(link: Connection, board: Array[c_double], number: int, plan: Plan) -> None:
    """Say that it is ready, hear when to start, run, and send the HostLog.

    If it has to give up, it sends a str that says why. Whatever else comes through the link, its end too, means: stop.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the parent's to handle, which then ends the link
    try:
        link.send("")
        start = link.recv()
        if link.poll(max(0.0, start + plan.stay(number)[0] - time.monotonic())):
            return
        # Only now: a host that joins late makes its limiter late too.
        log = _run(Instance(link, board, number, plan, start))
        link.send(log)  # after the limiter was closed: what it gave back is on the server's count by then
    except (EOFError, BrokenPipeError):
        return  # nobody listens any more
    except (BatchLimitError, ValueError) as error:
        link.send(f"{type(error).__name__}: {error}")


def _run(host: Instance) -> InstanceLog:
    match host.plan.front:
        case Front.THREADS:
            return threads.run(host)
        case Front.ASYNC:
            return asyncio.run(tasks.run(host))
