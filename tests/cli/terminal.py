"""A real terminal for commands that draw screens and read keys."""

import os
import pty
import sys
import time

PATIENCE = 120.0
"""Seconds that a screen is waited for."""


class Terminal:
    """A command of `batchlimit` in a terminal of its own."""

    def __init__(self, environment: dict[str, str], *words: str, columns: int = 120) -> None:
        size = {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "24"}
        self._environment, self._seen = environment | size, ""
        self._line = [sys.executable, "-m", "batchlimit", *words]
        self._status: int | None = None

    def __enter__(self) -> "Terminal":
        self._process, self._terminal = pty.fork()
        if self._process == 0:
            os.execve(sys.executable, self._line, self._environment)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._terminal)
        if self._status is None:
            os.kill(self._process, 9)
            os.waitpid(self._process, 0)

    def press(self, keys: str) -> None:
        self._seen = ""
        os.write(self._terminal, keys.encode())

    def await_text(self, *texts: str) -> None:
        """Read until all of them were written."""
        until = time.monotonic() + PATIENCE
        while missing := [each for each in texts if each not in self._seen]:
            assert time.monotonic() < until, (missing, self._seen)
            self._seen += os.read(self._terminal, 65536).decode(errors="ignore")

    def next_screen(self, last: str) -> str:
        """What is written after this text, up to the same text once more."""
        self._seen = self._seen.rpartition(last)[2]
        self.await_text(last)
        return self._seen

    def status(self) -> int:
        """Read to the end, and return how the command ended."""
        try:
            while os.read(self._terminal, 65536):
                pass
        except OSError:  # on Linux the end of a terminal is an error
            pass
        self._status = os.waitpid(self._process, 0)[1]
        return os.waitstatus_to_exitcode(self._status)
