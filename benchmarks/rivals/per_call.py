"""Every decision asks the bucket: exact, and a round trip each."""

from collections.abc import Generator

from benchmarks.rivals.request import Request, Take


class PerCall:
    """One all-or-nothing take a decision; nothing is kept, so nothing has to be shared."""

    period = None
    single = False

    def admit(self, cost: int, now: float) -> Generator[Request, int, bool]:
        granted = yield Take(cost, whole=True)
        return granted >= cost

    def background(self, now: float) -> Generator[Request, int, None]:
        yield from ()
