"""Keys that somebody presses at a terminal, one by one and without Enter."""

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_MOST = 32


class Keyboard:
    """Reads a terminal that tells of each key at once; `keyboard()` makes it."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal

    def pressed(self, seconds: float) -> str:
        """Return what was pressed within so many seconds, as soon as something is; "" if nothing was."""
        ready, _, _ = select.select([self._terminal], [], [], max(0.0, seconds))
        if not ready:
            return ""
        told = os.read(self._terminal, _MOST).decode(errors="ignore")
        return told or "\x04"  # the terminal has gone


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Have standard input tell of each key, and show none, until the end of the block. Not on Windows."""
    import termios  # no such module on Windows, where the other commands work
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield Keyboard(terminal)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
