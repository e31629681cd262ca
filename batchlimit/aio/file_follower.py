"""How a limiter for tasks goes by a file of limits, which some thread reads."""

import asyncio
import contextlib
import threading
from collections.abc import Callable

_PATIENCE = 5.0
"""How long (s) whoever reads a file waits for a loop that is busy."""


class FileFollower:
    """Has what a file says applied on the loop, or in the thread that tells of it while there is no loop.

    Args:
        apply: goes by what the file says now.
    """

    __slots__ = ("__weakref__", "_apply", "_is_behind", "_lock", "_loop")

    def __init__(self, apply: Callable[[], None]) -> None:
        self._apply = apply
        self._is_behind = False  # the file says something else
        self.after_fork()

    def after_fork(self) -> None:
        """In the child: there is no loop yet."""
        self._lock = threading.Lock()  # held to bind to a loop, and to apply a file where there is none
        self._loop: asyncio.AbstractEventLoop | None = None

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Apply what the file says on this running loop, now and from now on."""
        with self._lock:
            self._loop = loop
        self.catch_up()

    def obey(self, said: object) -> None:
        """Apply what the file says now; the thread that calls waits until that is so, a while at most."""
        self._is_behind = True
        with self._lock:
            loop = self._loop
            if loop is None:
                self.catch_up()
                return
        if asyncio._get_running_loop() is loop:
            self.catch_up()
            return
        done = threading.Event()
        with contextlib.suppress(RuntimeError):  # the loop was closed: the next one will do it
            loop.call_soon_threadsafe(self.catch_up, done)
            done.wait(_PATIENCE)

    def catch_up(self, done: threading.Event | None = None) -> None:
        """Apply what was not applied yet; requires to be on the loop, if there is one."""
        if self._is_behind:
            try:
                self._is_behind = False  # first: the file may change meanwhile
                self._apply()
            except BaseException:
                self._is_behind = True
                raise
        if done is not None:
            done.set()
