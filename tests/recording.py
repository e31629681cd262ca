"""A law that remembers what it was told."""

from batchlimit.concurrency import Sample
from batchlimit.concurrency.laws import Settable


class Recording(Settable):
    """A limit that a test may change, and that changes by nothing else."""

    def __init__(self, limit: int = 10) -> None:
        super().__init__(limit)
        self.samples: list[Sample] = []

    def update(self, sample: Sample) -> int:
        self.samples.append(sample)
        return self.limit
