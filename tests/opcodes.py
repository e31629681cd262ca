"""Tracing of each bytecode that runs."""

import sys
from collections.abc import Callable
from typing import Any


def trace_opcodes(tracer: Callable[..., Any]) -> None:
    """As `sys.settrace`. Python 3.12.1 traces bytecodes only if a frame has asked for that before."""
    sys._getframe().f_trace_opcodes = True
    sys.settrace(tracer)
