"""Clients on one processor, where the system can do that: they do not pass the interpreter's lock between two."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

CAN_PIN = sys.platform == "linux"


@contextmanager
def pinned(pin: bool) -> Iterator[None]:
    """Keep this thread, and those it starts meanwhile, on one processor, if `pin`."""
    if not pin or sys.platform != "linux":
        yield
        return
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(everywhere)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, everywhere)
