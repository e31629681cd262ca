"""What one call that held a permit told about the load."""

from enum import Enum
from typing import NamedTuple


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
