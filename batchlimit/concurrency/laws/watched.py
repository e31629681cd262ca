"""A wrapper that makes any law heed the watchers of the machine."""

from collections.abc import Sequence

from batchlimit.concurrency.law import Law, Sample, WrappingLaw


class Watched(WrappingLaw):
    """Turns a period in which watchers saw a reason to back off into one dropped call for `law`.

    The law gets the last call once more, as a dropped one: at most once a period, and not before there was a call. A
    period without a reason changes nothing. What a drop does is up to the law: AIMD falls by its ratio, Windowed and
    Periodic count it in the window or period under way, Gradient2 ignores it.

    A limiter with watchers wraps its law by itself, unless the law is Calibrated.

    Args:
        law: The law that gets the drops.

    Example:
        >>> from batchlimit.concurrency import Sample
        >>> from batchlimit.laws import AIMD, Watched
        >>> law = Watched(AIMD(initial=100, timeout=5))
        >>> law.update(Sample(0, 10_000_000, 100)), law.calibrate(["memory 0.95"], now_ns=0)
        (101, 90)
    """

    __slots__ = ("_last",)

    def __init__(self, law: Law) -> None:
        super().__init__(law)
        self._last: Sample | None = None

    def __repr__(self) -> str:
        return f"<Watched {self._law!r}>"

    def update(self, sample: Sample) -> int:
        """Pass the call on, and remember it."""
        self._last = sample
        return self._law.update(sample)

    def calibrate(self, events: Sequence[str], now_ns: int) -> int:
        """Tell the law of one drop, if there was any reason to back off."""
        if events and self._last is not None:
            return self._law.update(self._last._replace(dropped=True))
        return self._law.limit
