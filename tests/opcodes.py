"""Tracing of each bytecode that runs, and exceptions where the interpreter looks for signals."""

import dis
import functools
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import batchlimit

_OURS = batchlimit.__path__[0]
_LOOKS = ("RESUME", "CALL", "JUMP_BACKWARD")


def trace_opcodes(tracer: Callable[..., Any]) -> None:
    """As `sys.settrace`. Python 3.12.1 traces bytecodes only if a frame has asked for that before."""
    sys._getframe().f_trace_opcodes = True
    sys.settrace(tracer)


class Signals:
    """Raises KeyboardInterrupt in our code where the interpreter looks for signals: at these places of a call.

    It does so where a function begins, where a call has returned, and where a loop goes back.
    """

    def __init__(self, *places: int) -> None:
        """`places`: after how many of them it raises, and after how many more again."""
        self._places = list(places)
        self._left = self._places.pop(0)
        self._looks: dict[FrameType, int] = {}
        self.raised: list[str] = []

    def run(self, call: Callable[[], object]) -> None:
        """Call once, in this thread."""
        trace_opcodes(self._enter)
        try:
            call()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)

    def _enter(self, frame: FrameType, _event: str, _argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        before: int | None = None

        def step(frame: FrameType, event: str, _argument: object) -> Any:
            nonlocal before
            if event == "opcode":
                was, before = before, frame.f_lasti
                if was in _looks(frame.f_code) and _handler(frame.f_code, was) == _handler(frame.f_code, before):
                    self._come_by(frame)
            return step

        return step

    def _come_by(self, frame: FrameType) -> None:
        self._left -= 1
        if self._left == 0:
            self._left = self._places.pop(0) if self._places else 0
            self.raised.append(f"{frame.f_code.co_qualname}, line {frame.f_lineno}")
            raise KeyboardInterrupt


@functools.cache
def _looks(code: CodeType) -> frozenset[int]:
    return frozenset(each.offset for each in dis.get_instructions(code) if each.opname.startswith(_LOOKS))


@functools.cache
def _handler(code: CodeType, offset: int) -> object:
    """Where an exception goes on that is raised there."""
    table = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    return next((each.target for each in table if each.start <= offset < each.end), None)
