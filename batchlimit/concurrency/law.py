"""What a law is, and what it learns from."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol, runtime_checkable

from batchlimit.base.setting import between, bounds, whole


class Outcome(Enum):
    """How a call ended, as far as it tells about the load.

    Attributes:
        SUCCESS: The call was served, in a time that counts.
        DROPPED: Load made the call fail: a timeout, a refusal further down.
        IGNORED: The call tells nothing about the load: it was cancelled, or had wrong arguments.

    Example:
        >>> from batchlimit.concurrency import Outcome, classify
        >>> classify(TimeoutError()) is Outcome.DROPPED
        True
    """

    SUCCESS = "success"
    DROPPED = "dropped"
    IGNORED = "ignored"


class Sample(NamedTuple):
    """One call that is over, for a law to learn from.

    Attributes:
        start_ns: When the call was admitted (ns of a clock that never runs backwards).
        rtt_ns: How long it took (ns); 0 if the clock is too coarse to tell.
        in_flight: How many calls were under way when it was admitted, itself included.
        dropped: True if load made it fail (default False).
        operation: What kind of call it was, for laws that hold unlike kinds apart (default "").

    Example:
        >>> from batchlimit.concurrency import Sample
        >>> from batchlimit.laws import AIMD
        >>> AIMD(initial=20, timeout=5).update(Sample(start_ns=0, rtt_ns=5_000_000, in_flight=20))
        21
    """

    start_ns: int
    rtt_ns: int
    in_flight: int
    dropped: bool = False
    operation: str = ""


@runtime_checkable
class Law(Protocol):
    """Samples go in, a limit comes out.

    A law reads no clock and draws no random numbers. It is never called by two threads at once. A law belongs to one
    limiter. It may raise for arguments of its constructor, never for a sample.

    Example:
        >>> from batchlimit import ConcurrencyLimiter
        >>> from batchlimit.concurrency import Law, Sample
        >>> class Half:
        ...     limit = 20
        ...     def update(self, sample: Sample) -> int:
        ...         if sample.dropped:
        ...             self.limit = max(1, self.limit // 2)
        ...         return self.limit
        >>> isinstance(Half(), Law)
        True
        >>> with ConcurrencyLimiter(Half()) as limiter:
        ...     limiter.acquire().drop()
        ...     limiter.limit
        10
    """

    @property
    def limit(self) -> int:
        """How many calls may be under way now; at least 1."""

    def update(self, sample: Sample) -> int:
        """Learn from a call that ended. A call of Outcome.IGNORED is no sample.

        Args:
            sample: The call.

        Returns:
            The limit from now on (calls).
        """


@runtime_checkable
class Calibrated(Law, Protocol):
    """A law that also learns from the machine: from each period of a limiter's watchers.

    Example:
        >>> from batchlimit.concurrency import Calibrated
        >>> from batchlimit.laws import AIMD, Gitaly
        >>> isinstance(Gitaly(), Calibrated), isinstance(AIMD(timeout=5), Calibrated)
        (True, False)
    """

    def calibrate(self, events: Sequence[str], now_ns: int) -> int:
        """Learn what the watchers saw in the period that ended now.

        Args:
            events: Their reasons to back off; empty if all is well.
            now_ns: The time (ns), on the clock of the samples.

        Returns:
            The limit from now on (calls).
        """


class CountingLaw:
    """A law whose limit is a whole number at any time."""

    __slots__ = ("_limit",)

    _limit: int

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        return self._limit

    def update(self, sample: Sample) -> int:
        """Return the limit; a call changes nothing."""
        return self._limit


class EstimatingLaw:
    """A law whose limit is an estimate, rounded down: `_smoothing` is the weight of a new one."""

    __slots__ = ("_estimate", "_keep", "_maximum", "_minimum", "_noload_ns", "_smoothing")

    def __init__(self, initial: int, minimum: int, maximum: int, smoothing: float) -> None:
        self._estimate = float(whole("initial", initial))
        self._minimum, self._maximum = map(float, bounds(minimum, maximum))
        self._smoothing = between("smoothing", smoothing, 0.0, 1.0, "(]")
        self._keep = 1 - self._smoothing
        self._noload_ns: float = 0  # how long calls take without a queue; 0: it does not know yet

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        return int(self._estimate)

    @property
    def estimated_limit(self) -> float:
        """The limit before it is rounded down."""
        return self._estimate

    @property
    def baselines(self) -> dict[str, float]:
        """How long calls take without a queue, under "" (s); empty before the first call."""
        return {"": self._noload_ns / 1e9} if self._noload_ns else {}


class WrappingLaw:
    """Has another law decide, and chooses what that learns from."""

    __slots__ = ("law",)

    def __init__(self, law: Law) -> None:
        self.law = law  # that decides

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.law!r}>"

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        return self.law.limit


class LawState(NamedTuple):
    """What a law tells of itself, for those who watch it."""

    why: str = ""  # Why it set the limit last; see `listen` for the reasons. "": what the call it learnt from says.
    ratio: float = 0.0  # How many times as long as without a queue calls took of late; 0: it does not compare
    # The limit that it goes back to when what it tries out now is over (calls); None: it tries out nothing
    settled: int | None = None


def state_of(law: object) -> LawState:
    """Return what a law tells of itself, or the law that it wraps; nothing if it tells nothing."""
    return _told(law, "state", LawState) or LawState()


def baselines_of(law: object) -> dict[str, float]:
    """Return how long calls take without a queue (s) by operation, as a law holds, or the one that it wraps."""
    return dict(_told(law, "baselines", Mapping) or {})


def _told(law: object, name: str, kind: type) -> Any:
    while law is not None:
        if isinstance(found := getattr(law, name, None), kind):
            return found
        law = getattr(law, "law", None)
    return None
