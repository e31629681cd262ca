"""The bucket that all rivals share: it refills, gives, and is told; it knows of no lease."""

import math

from benchmarks.rivals.request import Request, Take, Tell


class PlainBucket:
    """A token bucket of `rate` tokens/s and `burst` tokens, full at first; below 0 when it is told too late.

    bucket.lua is the same in a server; a test holds the two against each other.
    """

    __slots__ = ("_at", "_burst", "_rate", "level")

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._at = -math.inf
        self.level = float(burst)

    def __repr__(self) -> str:
        return f"<PlainBucket {self.level:.3f} of {self._burst}>"

    def take(self, request: Request, now: float) -> int:
        """Answer a request that arrives at `now` (s); a clock that runs backwards stands still."""
        if now > self._at:
            self.level = min(self._burst, self.level + self._rate * (now - self._at))
            self._at = now
        match request:
            case Take(tokens, whole):
                granted = tokens if self.level >= tokens else 0 if whole else max(0, math.floor(self.level))
                self.level -= granted
                return granted
            case Tell(spent):
                self.level -= spent
                return math.floor(self.level)
