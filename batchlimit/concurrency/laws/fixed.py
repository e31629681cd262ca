"""Limits that no sample changes."""

import math
from collections.abc import Callable

from batchlimit.base.setting import whole
from batchlimit.concurrency.law import CountingLaw, Sample


class Fixed(CountingLaw):
    """The same limit for ever.

    Args:
        limit: How many calls may be under way (whole number, at least 1).

    Raises:
        TypeError: `limit` is no whole number.
        ValueError: `limit` is below 1.

    Example:
        >>> from batchlimit import ConcurrencyLimiter
        >>> from batchlimit.laws import Fixed
        >>> with ConcurrencyLimiter(Fixed(20)) as limiter:
        ...     limiter.limit
        20
    """

    __slots__ = ()

    def __init__(self, limit: int) -> None:
        self._limit = whole("a limit", limit, most=math.inf)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._limit})"

    def update(self, sample: Sample) -> int:
        """Return the limit, whatever happened."""
        return self._limit


class Settable(Fixed):
    """The limit that the application set last, from any thread.

    Args:
        limit: How many calls may be under way at first (whole number, at least 1).

    Raises:
        TypeError, ValueError: As Fixed.

    Example:
        >>> from batchlimit import ConcurrencyLimiter
        >>> from batchlimit.laws import Settable
        >>> law = Settable(20)
        >>> with ConcurrencyLimiter(law) as limiter:
        ...     law.set_limit(30)
        ...     limiter.limit
        30
    """

    __slots__ = ("_listeners",)

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._listeners: list[Callable[[], object]] = []

    def set_limit(self, limit: int) -> None:
        """Set the limit from now on. Waiters for whom there is room now are served.

        Args:
            limit: How many calls may be under way (whole number, at least 1).

        Raises:
            TypeError, ValueError: As Fixed.
        """
        self._limit = whole("a limit", limit, most=math.inf)
        for changed in self._listeners:
            changed()

    def listen(self, changed: Callable[[], object]) -> None:
        """Register a function to be called each time the limit was set, in the thread that set it.

        Args:
            changed: The function.
        """
        self._listeners.append(changed)
