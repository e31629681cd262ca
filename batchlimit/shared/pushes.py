"""What the store tells an instance that did not ask: read in a thread, from a subscription."""

import logging
import threading
from collections.abc import Callable
from random import uniform
from typing import Protocol

from batchlimit.events import tell
from batchlimit.lending.messages import SlotPush

_READ = 1.0
"""Seconds after which a listener looks whether it is to end."""
_PAUSE = (0.5, 1.0)
"""Seconds before it subscribes again, at least and at most."""


class Pushes(Protocol):
    """A subscription; for one thread."""

    def open(self) -> None:
        """Connect and subscribe."""
        ...

    def read(self, seconds: float) -> tuple[str, SlotPush] | None:
        """Return the next push and the name of its limit; None if there was none for so many seconds."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


class Listener:
    """Reads a subscription in a thread of its own, and subscribes again after it was lost.

    While it is away, waiters look by themselves: nothing is lost but time.
    """

    def __init__(
        self,
        subscribe: Callable[[], Pushes],
        receive: Callable[[str, SlotPush], None],
        back: Callable[[], None],
    ) -> None:
        """`receive` gets each push; `back` is called after each subscription: pushes before it were lost."""
        self._subscribe, self._receive, self._back = subscribe, receive, back
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="batchlimit-listener", daemon=True)
        self._has_failed = False

    def start(self) -> None:
        """Begin to read. RuntimeError if no thread can be had."""
        self._thread.start()

    def stop(self) -> None:
        """End within a second."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._read(self._subscribe())
            except Exception as error:  # noqa: BLE001  whatever it is: the next subscription may work
                level, self._has_failed = logging.DEBUG if self._has_failed else logging.INFO, True
                message = "no pushes from the store; who waits looks by itself: %s"
                tell("store.no_pushes", message, error, level=level, reason=str(error))
                self._stopped.wait(uniform(*_PAUSE))

    def _read(self, pushes: Pushes) -> None:
        try:
            pushes.open()
            self._back()
            while not self._stopped.is_set():
                if push := pushes.read(_READ):
                    self._receive(*push)
        finally:
            pushes.close()
