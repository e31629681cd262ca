"""Keys where reservoirs let few tokens go to waste: there one plain bucket decides for a while, refusals included.

Reservoirs admit less than a plain bucket by the tokens that expire unspent or cannot be refilled. Where those are few
in a window, the plain bucket decides the next windows, and refills slower by as much. It does so as long as about as
many requests come. Where a burst is small for so many instances, much is wasted, and reservoirs decide on.
"""

import math

_SECONDS = 4.0
"""Of a window at least: longer than two leases."""
_FEWEST = 100
"""Requests that reservoirs admit in a window at least."""
_WASTE = 0.01
"""The share of the tokens that may be wasted."""
_WINDOWS = 12
"""Trust ends after so many windows."""
_ALIKE = 1.5
"""With so many times more or fewer requests in a window, trust ends."""


class BucketTrust:
    """What is known of one key. Instants are seconds.

    Attributes:
        until: before it the plain bucket decides; -inf: reservoirs do.
        pace: of the refill of the plain bucket, as a share of its rate.
        count: requests of the present window that the plain bucket decided.
        calls: of the store that reservoirs would have made for those of the windows before.
    """

    __slots__ = (
        "_admitted",
        "_asked",
        "_begun",
        "_called",
        "_left",
        "_length",
        "_plain",
        "calls",
        "count",
        "pace",
        "until",
    )

    def __init__(self) -> None:
        self.pace, self.count, self.calls = 1.0, 0, 0.0
        self._left = self._asked = self._called = 0
        self._length = 0.0
        self.begin(math.inf)

    def begin(self, now: float) -> None:
        """Begin a window in which reservoirs decide."""
        self.settle()
        self.until, self._begun = -math.inf, now
        self._asked = self._admitted = self._plain = self._called = 0

    def call(self) -> None:
        """Take note of a call of the store."""
        self._called += 1

    def add(self, admitted: int, plain: int) -> None:
        """Take note of tokens that reservoirs admitted, and the plain bucket would have."""
        self._asked += 1
        self._admitted += admitted
        self._plain += plain

    def is_due(self, now: float) -> bool:
        """Whether the window is long enough."""
        return self._admitted >= _FEWEST and now - self._begun >= _SECONDS

    def judge(self, now: float, more: float) -> None:
        """Trust the plain bucket, or begin another window; `more`: tokens that it has less than limiters and store."""
        wasted = max(0.0, (self._plain - self._admitted - more) / self._admitted)
        if wasted > _WASTE:
            self.begin(now)
            return
        self.pace, self._left, self._length = 1.0 - wasted, _WINDOWS, now - self._begun
        self.until = now + self._length

    def lasts(self, now: float) -> bool:
        """Whether the plain bucket decides the next window as well, since one has ended."""
        is_alike = self._asked / _ALIKE <= self.count <= self._asked * _ALIKE
        self.settle()
        self._left -= 1
        if is_alike and self._left:
            self.until = now + self._length
        return is_alike and self._left > 0

    def settle(self) -> None:
        """Count the calls of the present window, which ends."""
        if self.count:
            self.calls += self.count * self._called / self._asked
        self.count = 0
