"""How much work Python does, told by a count of bytecodes and not by a clock: the same on every machine."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from tests.opcodes import trace_opcodes


class Work:
    """Counts the bytecodes of this package that run within it; what is written in C counts nothing."""

    def __init__(self) -> None:
        self.done = 0

    def of(self, act: Callable[[], object]) -> int:
        """Return how many a call takes."""
        before, tracer = self.done, sys.gettrace()
        trace_opcodes(self._enter)
        try:
            act()
        finally:
            sys.settrace(tracer)
        return self.done - before

    def _enter(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        if "batchlimit" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._count

    def _count(self, _frame: FrameType, event: str, _arg: Any) -> Any:
        self.done += event == "opcode"
        return self._count
