"""The main function of a fleet's process."""

import asyncio
import signal
import time
from ctypes import Array, c_double
from multiprocessing.connection import Connection

from batchlimit import BatchLimitError
from benchmarks.audited_fleet import tasks, threads
from benchmarks.audited_fleet.instance import Instance, InstanceLog
from benchmarks.audited_fleet.plan import Api, Plan


def run_process(link: Connection, board: Array[c_double], number: int, plan: Plan) -> None:
    """Report readiness, receive the instant of the start, run, and send the InstanceLog.

    If the run fails, a str with the reason is sent instead. Any later message, or the end of the link, means: stop.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and then closes the link
    try:
        link.send("")
        start = link.recv()
        if link.poll(max(0.0, start + plan.stay(number)[0] - time.monotonic())):
            return
        # Not before: a process that joins late makes its limiter late too.
        log = _run(Instance(link, board, number, plan, start))
        link.send(log)  # after the limiter was closed: the server has counted the tokens that it returned
    except (EOFError, BrokenPipeError):
        return  # the parent has closed the link
    except (BatchLimitError, ValueError) as error:
        link.send(f"{type(error).__name__}: {error}")


def _run(instance: Instance) -> InstanceLog:
    match instance.plan.api:
        case Api.THREADS:
            return threads.run(instance)
        case Api.ASYNC:
            return asyncio.run(tasks.run(instance))
