"""What a shared concurrency limiter counts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from batchlimit.shared.local_slots import LocalSlots


@dataclass(frozen=True, slots=True)
class SharedKeyStatistics:
    """One key in this process, and as the store last told.

    Attributes:
        in_flight: Permits under way in this process.
        waiting: Callers of this process that wait.
        held: Permits that the store lends to this process.
        limit: Permits in the whole fleet.
        lent: Permits that the store lent to the whole fleet when it was last asked.
        instances: Limiter instances that held permits or waited then.

    Example:
        >>> from batchlimit.shared import SharedConcurrencyLimiter
        >>> with SharedConcurrencyLimiter.from_url("memory://", {"gpu": 1}) as limiter:
        ...     with limiter.acquire("gpu"):
        ...         limiter.statistics().keys["gpu"]
        SharedKeyStatistics(in_flight=1, waiting=0, held=1, limit=1, lent=1, instances=1)
    """

    in_flight: int
    waiting: int
    held: int
    limit: int
    lent: int
    instances: int


@dataclass(frozen=True, slots=True)
class SharedStatistics:
    """A shared concurrency limiter now, and what it counted since it was made.

    Attributes:
        keys: The keys that are in use.
        admitted: Permits that were acquired.
        refused: Callers that were refused: there was no permit in time, or the queue was full.
        lost: Permits that were lost while they were under way.
        asks: How often the store was asked.

    Example:
        >>> from batchlimit.shared import SharedConcurrencyLimiter
        >>> with SharedConcurrencyLimiter.from_url("memory://", {"gpu": 1}) as limiter:
        ...     with limiter.acquire("gpu"):
        ...         limiter.statistics().admitted
        1
    """

    keys: Mapping[str, SharedKeyStatistics]
    admitted: int
    refused: int
    lost: int
    asks: int


class Totals:
    """Counts what keys did that are not in use any more, and what is not counted by key."""

    __slots__ = ("admitted", "asks", "lost", "refused")

    def __init__(self) -> None:
        self.admitted = self.refused = self.lost = self.asks = 0

    def statistics(self, keys: Iterable[LocalSlots]) -> SharedStatistics:
        """Return a copy, with the keys that are in use."""
        keys = list(keys)
        admitted = self.admitted + sum(each.admitted for each in keys)
        return SharedStatistics(
            {each.key: _of_key(each) for each in keys}, admitted, self.refused, self.lost, self.asks
        )


def _of_key(slots: LocalSlots) -> SharedKeyStatistics:
    last = slots.asks.reply
    told = (last.limit, last.lent, last.instances) if last else (slots.limit, 0, 0)
    return SharedKeyStatistics(slots.in_flight, len(slots.line), slots.held.count, *told)
