"""Limits that no sample changes."""

from collections.abc import Callable

from batchlimit.concurrency.law import Sample


class Fixed:
    """The same limit for ever."""

    __slots__ = ("_limit",)

    def __init__(self, limit: int) -> None:
        self._limit = _checked(limit)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._limit})"

    @property
    def limit(self) -> int:
        return self._limit

    def update(self, sample: Sample) -> int:
        """Return the limit, whatever happened."""
        return self._limit


class Settable(Fixed):
    """The limit that was set last."""

    __slots__ = ("_listeners",)

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._listeners: list[Callable[[], object]] = []

    def set_limit(self, limit: int) -> None:
        """From now on, as many calls may be under way: a whole number, at least 1. From any thread."""
        self._limit = _checked(limit)
        for changed in self._listeners:
            changed()

    def listen(self, changed: Callable[[], object]) -> None:
        """Call this whenever the limit was set, in the thread that set it."""
        self._listeners.append(changed)


def _checked(limit: object) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise TypeError(f"a limit must be a whole number of calls, not {limit!r}")
    if limit < 1:
        raise ValueError(f"a limit must be at least 1 call, not {limit}")
    return limit
