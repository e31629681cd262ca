"""What `timeout=` means: until when a caller waits."""

import math
import sys

from batchlimit.base.redaction import shown

NO_WAIT = -math.inf
"""The deadline of a caller that takes the first answer: it waits for one round trip, never for a refill."""
LONG_AGO = -math.inf
"""Before every instant; one object for all keys, where each `-math.inf` would make its own."""


def deadline(timeout: object, now: float) -> float:
    """Return the instant until which a caller waits: NO_WAIT for a timeout of 0 seconds, never (inf) for None."""
    seconds = patience(timeout)
    return now + seconds if seconds > 0.0 else NO_WAIT


def patience(timeout: object, name: str = "timeout") -> float:
    """Return for how many seconds a caller waits: for ever (inf) for None; TypeError or ValueError."""
    if timeout is None:
        return math.inf
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"{name} must be None or a number of seconds, not {shown(timeout)}")
    if not timeout >= 0.0:
        raise ValueError(f"{name} must be None or at least 0 seconds, not {shown(timeout)}")
    return timeout if timeout <= sys.float_info.max else math.inf
