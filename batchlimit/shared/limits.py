"""What each key of a shared concurrency limiter gets: how many permits in the fleet, a queue, a lease."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from batchlimit.base.patterns import limits_by_name
from batchlimit.base.redaction import shown
from batchlimit.concurrency.queue import Queue

PATIENT = Queue(1000, max_wait=None)
"""The queue of a limit that names none: `timeout=` alone says how long a caller waits."""


@dataclass(frozen=True, slots=True)
class Shared:
    """The limit of each key that a pattern names, over the whole fleet.

    Args:
        limit: How many permits of one key may be held at once (whole number, at least 1).
        queue: Where callers of this process wait (default: 1000 at most, as long as their `timeout` says).
        lease: How long the store keeps the permits of a process that died (seconds, default 10.0; 0.1 to 3600). A
            process that cannot reach the store loses its permits after nine tenths of that.

    Raises:
        TypeError: `limit` is no whole number, `queue` no Queue, or `lease` no number.
        ValueError: `limit` or `lease` is out of its range.

    Example:
        >>> from batchlimit.shared import Shared, SharedConcurrencyLimiter
        >>> limits = {"export:*": Shared(10, lease=30.0), "gpu": 64}
        >>> with SharedConcurrencyLimiter.from_url("memory://", limits) as limiter:
        ...     with limiter.acquire("export:42"):
        ...         print("at most ten of export:42 in the fleet")
        at most ten of export:42 in the fleet
    """

    limit: int
    queue: Queue = PATIENT
    lease: float = 10.0

    def __post_init__(self) -> None:
        if isinstance(self.limit, bool) or not isinstance(self.limit, int):
            raise TypeError(f"the limit of a key is a whole number of permits, not {shown(self.limit)}")
        if not 1 <= self.limit <= 1_000_000_000:
            raise ValueError(f"the limit of a key must be from 1 to 1,000,000,000, not {shown(self.limit)}")
        if not isinstance(self.queue, Queue):
            raise TypeError(f"queue must be like Queue(100), not {self.queue!r}")
        if isinstance(self.lease, bool) or not isinstance(self.lease, int | float):
            raise TypeError(f"lease must be a number of seconds, not {shown(self.lease)}")
        if not 0.1 <= self.lease <= 3600.0:
            raise ValueError(f"lease must be from 0.1 to 3600 seconds, not {shown(self.lease)}")


def limits_of(limits: Mapping[str, int | Shared]) -> Callable[[str], Shared]:
    """Return the function from a checked key to its limit, which raises ValueError for a key without one."""
    return limits_by_name(limits, '{"export:*": 10, "gpu": 64}', _shared)


def _shared(_name: str, _number: int, given: int | Shared) -> Shared:
    return given if isinstance(given, Shared) else Shared(given)
