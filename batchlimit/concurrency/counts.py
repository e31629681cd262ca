"""What a locked gate counts, and the refusals that it makes from these counts."""

from collections import Counter
from collections.abc import Mapping

from batchlimit.concurrency.gate import Gate, Reason
from batchlimit.concurrency.statistics import ConcurrencyStatistics, PartitionStatistics, WatcherStatistics
from batchlimit.errors import ConcurrencyLimited
from batchlimit.histogram import Durations, Histogram

_SECOND = 1_000_000_000
_RECENT = 16
"""Refusals whose calls the mean rtt is about: `retry_after` is estimated from it."""


class Counts:
    """Counts calls by how they ended, and refusals by reason. Every method requires the lock of the gate.

    Attributes:
        key: The key whose calls are counted; None: the limiter has one limit for all.
    """

    __slots__ = (
        "_mean_ns",
        "_waits",
        "abandoned",
        "bypassed",
        "dropped",
        "ignored",
        "key",
        "last_rtt_ns",
        "refused",
        "shed",
        "succeeded",
        "unknown",
    )

    def __init__(self, key: str | None = None) -> None:
        self.key = key
        self.succeeded = self.dropped = self.ignored = 0
        self.bypassed = self.abandoned = self.shed = self.unknown = 0
        self.last_rtt_ns = 0
        self._mean_ns = 0.0
        self.refused: Counter[str] = Counter()
        self._waits: Durations | None = None  # for nobody waits at most keys of a keyed limiter

    def __repr__(self) -> str:
        return f"<Counts: {self.succeeded} succeeded, {self.dropped} dropped, {self.refused.total()} refused>"

    @property
    def ended(self) -> int:
        """How many calls that were admitted under the limit are over. It may be read without the lock."""
        return self.succeeded + self.dropped + self.ignored

    @property
    def waits(self) -> Histogram:
        """How long callers waited in the queue."""
        return Histogram() if self._waits is None else self._waits.read()

    def waited(self, ns: int) -> None:
        """Count a caller that waits no longer."""
        if self._waits is None:
            self._waits = Durations()
        self._waits.add(ns / _SECOND)

    def refusal(self, gate: Gate, reason: Reason, now_ns: int) -> ConcurrencyLimited:
        """Count a refusal; return it with an estimate of when to come back."""
        self.refused[reason] += 1
        # The mean is of calls that ended just before refusals: to keep it at each call would take 60 ns of every call.
        self._mean_ns += (self.last_rtt_ns - self._mean_ns) / (_RECENT if self._mean_ns else 1)
        wait = gate.wait_ns(self._mean_ns, reason, now_ns)
        seconds = None if wait is None else wait / _SECOND
        return ConcurrencyLimited(reason, seconds, limit=gate.limit, in_flight=gate.in_flight, key=self.key)

    def refusal_of_unknown(self, gate: Gate, partition: str) -> ConcurrencyLimited:
        """Count the refusal of a call under a name that no partition has; return it."""
        self.refused["unknown_partition"] += 1
        detail = f"no partition is named {partition!r}; unknown='spare' of Partitions would let it have what is spare"
        return ConcurrencyLimited("unknown_partition", None, limit=gate.limit, in_flight=gate.in_flight, detail=detail)

    def statistics(
        self, gate: Gate, watchers: tuple[WatcherStatistics, ...], baselines: Mapping[str, float]
    ) -> ConcurrencyStatistics:
        """Return a copy of the counts, with what is in flight and waits now."""
        return ConcurrencyStatistics(
            limit=gate.limit,
            in_flight=gate.in_flight,
            waiting=gate.waiting.count,
            succeeded=self.succeeded,
            dropped=self.dropped,
            ignored=self.ignored,
            bypassed=self.bypassed,
            shed=self.shed,
            abandoned=self.abandoned,
            refused=dict(self.refused),
            watchers=watchers,
            unknown=self.unknown,
            waits=self.waits,
            baselines=baselines,
            raised=gate.raised,
            lowered=gate.lowered,
            last_rtt=self.last_rtt_ns / _SECOND,
            partitions={p.name: PartitionStatistics(p.busy, p.guaranteed, p.most) for p in gate.partitions.all()},
        )
