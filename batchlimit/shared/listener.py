"""The thread that hears what the store tells an instance unasked."""

import logging
import threading
import time
from collections.abc import Callable
from random import uniform
from typing import Any

from batchlimit.bucket.slot_table import SlotPush
from batchlimit.events import log_event

_READ = 1.0
"""Seconds of silence after which a listener looks whether it is to end, and whether its subscription is alive."""
_SHORT = 0.02
"""A subscription that failed after fewer seconds is not tried again at once."""
_PAUSE = (0.5, 1.0)
"""Seconds before it is, at least and at most."""
_LONG = 60.0
"""The log tells of a failure after so many seconds without one; of others at the level DEBUG."""


class Listener(threading.Thread):
    """Reads a subscription until `stop`. While it is away waiters look by themselves, which takes time."""

    def __init__(
        self,
        subscribe: Callable[[], Any],
        receive: Callable[[str, SlotPush], None],
        back: Callable[[], None],
        knock: Callable[[], bool],
    ) -> None:
        super().__init__(name="batchlimit-listener", daemon=True)
        self._subscribe, self._receive = subscribe, receive
        self._back = back  # called after each subscription, for pushes before it were lost
        self._knock = knock  # has a push published to this instance, if it returns True
        self._silenced = threading.Event()

    def stop(self) -> None:
        """End within a second."""
        self._silenced.set()

    def run(self) -> None:
        failed = -_LONG
        while not self._silenced.is_set():
            began = time.monotonic()
            try:
                self._read(self._subscribe())
            except Exception as error:  # noqa: BLE001  whatever it is: the next subscription may work
                if self._silenced.is_set():  # whoever closes the store ends it
                    return
                now, before, failed = time.monotonic(), failed, time.monotonic()
                level = logging.INFO if now - before >= _LONG else logging.DEBUG
                message = "no pushes from the store; who waits looks by itself: %s"
                log_event("store.no_pushes", message, error, level=level, reason=str(error))
                if now - began < _SHORT:
                    self._silenced.wait(uniform(*_PAUSE))

    def _read(self, pushes: Any) -> None:
        try:
            pushes.open()
            self._back()
            has_knocked = False
            while not self._silenced.is_set():
                if push := pushes.read(_READ):
                    self._receive(*push)
                elif has_knocked:
                    raise TimeoutError(f"the subscription did not hear within {_READ:g} s what was published to it")
                has_knocked = push is None and self._knock()
        finally:
            pushes.close()
