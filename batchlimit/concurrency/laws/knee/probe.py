"""When to try another limit for a moment, to see what calls take there: under a load that lasts, nothing else shows."""

_SPANS = 2
"""How long a probe is: one span in which the calls under way get used to its limit, one that is measured."""
_PATIENCE_NS = 20 * 10**9
_PATIENCE = 40
"""Spans in use, and ns, without a calm one, after which it is time: then a probe of 60 % costs below 1 %."""
_IMPATIENCE = 5
"""Spans after which the first is due, while little is known; twice as many before the next, up to _PATIENCE."""
_PART = 0.6
"""Of the limit; or its inverse where that is as low as it may get. Never a fixed few: that would refuse most calls."""


class Probe:
    """Counts the spans since calls were last seen not to queue, and holds what the limit was before it was tried."""

    __slots__ = ("_calm_at", "_every", "_in_use", "_left", "resume")

    def __init__(self) -> None:
        self._every = _IMPATIENCE
        self._in_use = self._calm_at = self._left = 0
        self.resume = 0.0
        """The limit to go back to."""

    def __repr__(self) -> str:
        return f"<Probe: {self._left} spans left, {self._in_use} of {self._every} waited>"

    @property
    def under_way(self) -> bool:
        return self._left > 0

    def calm(self, now: int) -> None:
        """Count from here: the last span was not crowded."""
        self._in_use, self._calm_at = 0, now

    def hurry(self, now: int) -> None:
        """Count from here, to a few: what is held to be true is new."""
        self.calm(now)
        self._every = _IMPATIENCE

    def is_due(self, now: int, jitter: float) -> bool:
        """Count a span in use; return whether it is time."""
        self._in_use += 1
        part = jitter * self._every / _PATIENCE
        # The distance, not the difference: a clock that leapt must not put probes off for ever.
        return self._in_use >= part * _PATIENCE and abs(now - self._calm_at) >= part * _PATIENCE_NS

    def begin(self, limit: float, minimum: int) -> float:
        """Return the limit to try: lower, or higher where there is no lower one."""
        self._left, self.resume = _SPANS, limit
        lower = max(_PART * limit, minimum)
        return lower if round(lower) < round(limit) else max(limit / _PART, limit + 1)

    def step(self, now: int) -> bool:
        """Count a span of the probe; return whether it was the last."""
        self._left -= 1
        if self._left:
            return False
        self.calm(now)
        self._every = min(_PATIENCE, 2 * self._every)
        return True
