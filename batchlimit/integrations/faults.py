"""What goes wrong in functions of the application, or in its limiter: told in the log at most once a minute."""

import logging
import threading
import time
from collections.abc import Callable, Hashable
from math import inf

from batchlimit.events import log_event

_PAUSE = 60.0


class Faults:
    """Tells the log of faults that each request may repeat."""

    def __init__(self, pause: float = _PAUSE, clock: Callable[[], float] = time.monotonic) -> None:
        self._pause, self._clock = pause, clock
        self._told: dict[Hashable, tuple[float, int]] = {}
        self._lock = threading.RLock()  # a destructor may have something to tell while its thread is inside

    def tell(
        self, what: Hashable, message: str, *arguments: object, level: int = logging.ERROR, trace: bool = True
    ) -> None:
        """Write to the log, unless this thing was written less than a minute ago."""
        with self._lock:
            now = self._clock()
            quiet_until, missed = self._told.get(what, (-inf, 0))
            is_due = now >= quiet_until
            self._told[what] = (now + self._pause, 0) if is_due else (quiet_until, missed + 1)
        if is_due:
            error = arguments[-1] if trace and arguments and isinstance(arguments[-1], BaseException) else None
            if missed:
                message, arguments = f"{message} (and %d times more since the last message)", (*arguments, missed)
            log_event("web.fault", message, *arguments, error=error, level=level)
