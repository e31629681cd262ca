"""What one call that held a permit told about the load."""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol, runtime_checkable


class Outcome(Enum):
    """How a call ended, as far as it tells about the load."""

    SUCCESS = "success"
    """It was served, in time that counts."""
    DROPPED = "dropped"
    """Load made it fail: a timeout, a refusal further down."""
    IGNORED = "ignored"
    """It tells nothing about the load: cancelled, wrong arguments."""


class Sample(NamedTuple):
    """One call that is over. A tuple, for one is made for each call: a frozen dataclass takes three times as long."""

    start_ns: int
    """When it was admitted: ns of a clock that never runs backwards."""
    rtt_ns: int
    """How long it took, in ns; 0 where the clock is too coarse to tell."""
    in_flight: int
    """How many calls were under way when it was admitted, this one included."""
    dropped: bool = False
    """Whether load made it fail."""
    operation: str = ""
    """What kind of call it was, for laws that hold unlike kinds apart."""


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
