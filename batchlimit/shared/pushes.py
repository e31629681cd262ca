"""What the store tells an instance that did not ask: read in a thread, from a subscription."""

import logging
import threading
import time
from collections.abc import Callable
from random import uniform
from typing import Any

from batchlimit.bucket.slot_messages import SlotPush
from batchlimit.events import log_event

_READ = 1.0
"""Seconds of silence after which a listener looks whether it is to end, and whether its subscription is alive."""
_SHORT = 0.02
"""A subscription that failed after fewer seconds is not tried again at once."""
_PAUSE = (0.5, 1.0)
"""Seconds before it is, at least and at most."""
_LONG = 60.0
"""The log tells of a failure after so many seconds without one; of others at the level DEBUG."""


class Silent(Exception):
    """A message that was published to a subscription did not arrive: it is dead, or at a server without publishers."""

    def __init__(self) -> None:
        super().__init__(f"the subscription did not hear within {_READ:g} s what was published to it")


class Listener:
    """Reads a subscription in a thread of its own. While it is away waiters look by themselves, which takes time."""

    def __init__(
        self,
        subscribe: Callable[[], Any],
        receive: Callable[[str, SlotPush], None],
        back: Callable[[], None],
        knock: Callable[[], bool],
    ) -> None:
        """Make one that does not read yet.

        `subscribe` makes a Subscription, `back` is called after each, for pushes before it were lost, and `knock` has
        a push published to this instance, if it returns True.
        """
        self._subscribe, self._receive, self._back, self._knock = subscribe, receive, back, knock
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="batchlimit-listener", daemon=True)

    def start(self) -> None:
        """Begin to read. RuntimeError if no thread can be had."""
        self._thread.start()

    def stop(self) -> None:
        """End within a second."""
        self._stopped.set()

    def _run(self) -> None:
        failed = -_LONG
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                self._read(self._subscribe())
            except Exception as error:  # noqa: BLE001  whatever it is: the next subscription may work
                if self._stopped.is_set():  # whoever closes the store ends it
                    return
                now, before, failed = time.monotonic(), failed, time.monotonic()
                level = logging.INFO if now - before >= _LONG else logging.DEBUG
                message = "no pushes from the store; who waits looks by itself: %s"
                log_event("store.no_pushes", message, error, level=level, reason=str(error))
                if now - began < _SHORT:
                    self._stopped.wait(uniform(*_PAUSE))

    def _read(self, pushes: Any) -> None:
        try:
            pushes.open()
            self._back()
            has_knocked = False
            while not self._stopped.is_set():
                if push := pushes.read(_READ):
                    self._receive(*push)
                elif has_knocked:
                    raise Silent
                has_knocked = push is None and self._knock()
        finally:
            pushes.close()
