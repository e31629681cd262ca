"""What sets a concurrency limit: a law, told of each call that ended."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from batchlimit.core.sample import Sample


@runtime_checkable
class Law(Protocol):
    """Samples go in, a limit comes out. It reads no clock, draws no random numbers, and is never called by two at once.

    A law belongs to one limiter; it may raise for arguments of its constructor, never for a sample.
    """

    @property
    def limit(self) -> int:
        """How many calls may be under way now, at least 1."""
        ...

    def update(self, sample: Sample) -> int:
        """Learn from a call that ended; return the limit from now on. A call of Outcome.IGNORED is no sample."""
        ...


@runtime_checkable
class Calibrated(Protocol):
    """A law that also hears of the machine: of each round of a limiter's watchers."""

    @property
    def limit(self) -> int: ...

    def update(self, sample: Sample) -> int: ...

    def calibrate(self, events: Sequence[str], now_ns: int) -> int:
        """Learn what the watchers saw in the period that ended now (reasons to back off; none: all is well)."""
        ...
