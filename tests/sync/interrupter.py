"""An interrupt that falls where the test says."""

import contextlib
import dis
import functools
import gc
import itertools
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import batchlimit
from batchlimit import RateLimiter
from batchlimit.sync.key_entry import KeyEntry
from tests.depth import depth
from tests.sync.stage import DEADLINE, start

LIBRARY = Path(batchlimit.__file__).parent


def lines_interrupted(interrupted_at: Callable[[int], bool]) -> int:
    """Interrupt a call at its first line, at later ones until it has no more; return how many lines it has at least.

    Every fifth one by default, with `scripts/test --deep` all of them: each is a call of its own.
    """
    return next(n for n in itertools.count(1, depth(5, 1)) if not interrupted_at(n)) - depth(5, 1)


class Interrupter:
    """Raises KeyboardInterrupt in its thread at the nth line that it comes to: of these modules, outside `with` lines.

    (At the end of a `with` its line is traced once more, before the lock is let go; no signal is handled there.)
    """

    def __init__(self, n: int, *modules: str, under_lock: bool) -> None:
        """`modules` are paths below batchlimit/, as in "sync/limiter"."""
        self._left = n
        self._files = {str((LIBRARY / f"{each}.py").resolve(strict=True)) for each in modules}
        self._under_lock = under_lock
        self.line = "no line"

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> "Interrupter | None":
        if frame.f_code.co_filename not in self._files or frame.f_code.co_name == "__init__":
            return None
        if event == "line" and self._may_raise(frame):
            self._left -= 1
            if self._left == 0:
                self.line = f"{frame.f_code.co_qualname}, line {frame.f_lineno}"
                raise KeyboardInterrupt
        return self

    def _may_raise(self, frame: FrameType) -> bool:
        if self._under_lock:
            return frame.f_lineno not in _lines_of_with(frame.f_code)
        entry = _entry_of(frame)  # what has none is called under the lock
        return entry is not None and not entry.lock._is_owned()

    def run(self, call: Callable[[], object]) -> bool:
        """Call once; return whether it was interrupted.

        Nothing is collected meanwhile: the interrupt would fall into the end of another test's limiter, and be ignored.
        """
        with _without_collector():
            sys.settrace(self)
            try:
                call()
            except KeyboardInterrupt:
                return True
            finally:
                sys.settrace(None)
        return False

    def left_all_sound(self, limiter: RateLimiter, *keys: str, most: int) -> None:
        """Check that of each key no more is to be had than `most`, and that nobody waits for ever, or for nobody."""
        for key in keys:
            try:
                assert start(partial(_admitted, limiter, key)).result(DEADLINE) <= most, f"minted in {self.line}"
            except TimeoutError:
                pytest.fail(f"a caller was interrupted in {self.line}, and the next one waits for ever")
        assert limiter.statistics().waiting == 0, f"a ghost stands in line since {self.line}"


@functools.cache
def _lines_of_with(code: CodeType) -> frozenset[int | None]:
    """By what runs: the file may say something else by now."""
    enters = (
        each for each in dis.get_instructions(code) if each.opname == "BEFORE_WITH" or "__enter__" in each.argrepr
    )
    return frozenset(each.positions.lineno for each in enters if each.positions is not None)


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _entry_of(frame: FrameType) -> KeyEntry | None:
    """The key entry that this function belongs to, or is about."""
    found = frame.f_locals.get("self", frame.f_locals.get("entry"))
    return found if isinstance(found, KeyEntry) else getattr(found, "entry", None)


def _admitted(limiter: RateLimiter, key: str) -> int:
    return sum(itertools.takewhile(bool, (limiter.try_acquire(key) for _ in range(20))))
