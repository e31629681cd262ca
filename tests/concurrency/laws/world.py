"""Samples by hand, and a law that only listens."""

from collections.abc import Iterable

from batchlimit.concurrency.law import Law, Sample

MS = 1_000_000
SECOND = 1000 * MS


class Listener:
    """Keeps the samples that it was told; its limit counts them."""

    def __init__(self) -> None:
        self.told: list[Sample] = []

    @property
    def limit(self) -> int:
        return 1 + len(self.told)

    def update(self, sample: Sample) -> int:
        self.told.append(sample)
        return self.limit


def sample(ms: float = 10, in_flight: int = 1000, dropped: bool = False, *, at: float = 0) -> Sample:
    """A call of so many ms, from `at` ms on; by default it ends well, and leaves nothing of a limit unused."""
    return Sample(round(at * MS), round(ms * MS), in_flight, dropped)


def drop(ms: float = 10) -> Sample:
    return sample(ms, dropped=True)


def limits(law: Law, samples: Iterable[Sample]) -> list[int]:
    return [law.update(each) for each in samples]
