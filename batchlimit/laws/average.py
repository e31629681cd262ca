"""A mean that follows slowly: what an rtt usually is."""


class Average:
    """The mean of the first `warmup` values, then an exponential average of about the last `window`.

    After the warm-up a value v counts f = 2 / (window + 1): average x (1 - f) + v x f.
    """

    __slots__ = ("_count", "_factor", "_sum", "_warmup", "value")

    def __init__(self, window: int, warmup: int) -> None:
        self.value = self._sum = 0.0
        self._count = 0
        self._warmup = warmup
        self._factor = 2.0 / (window + 1)

    def __repr__(self) -> str:
        return f"<Average {self.value:.1f}>"

    def add(self, value: float) -> float:
        """Return the average with `value` in it."""
        if self._count < self._warmup:
            self._count += 1
            self._sum += value
            self.value = self._sum / self._count
        else:
            self.value = self.value * (1 - self._factor) + value * self._factor
        return self.value
