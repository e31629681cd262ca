"""Spends first and reports afterwards, every so often: never waits, and never knows what others spend meanwhile."""

from collections.abc import Generator

from benchmarks.rivals.request import Request, Tell


class Reporter:
    """Admits while the level that it saw last covers what it has spent since; tells the bucket every `period` (s)."""

    single = True

    def __init__(self, period: float = 0.1) -> None:
        self.period: float | None = period
        self._level: int | None = None
        self._spent = 0  # and not yet told
        self._telling = 0  # told, and not yet answered

    def __repr__(self) -> str:
        return f"<Reporter: {self._spent + self._telling} spent of {self._level}>"

    def admit(self, cost: int, now: float) -> Generator[Request, int, bool]:
        level = self._level
        if level is None:
            level = self._level = yield Tell(0)
        if level - self._telling - self._spent < cost:
            return False
        self._spent += cost
        return True

    def background(self, now: float) -> Generator[Request, int, None]:
        if self._level is None:
            return  # nobody called yet
        self._telling, self._spent = self._spent, 0
        self._level = yield Tell(self._telling)
        self._telling = 0
