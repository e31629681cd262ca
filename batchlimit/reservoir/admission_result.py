"""How one call was settled: the verdict, how it came about, and what its caller is told of it."""

from typing import NamedTuple

from batchlimit.decision import Decision, Source
from batchlimit.errors import RateLimited
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.statistics import decision
from batchlimit.reservoir.waiter import Admit, Refuse


class AdmissionResult(NamedTuple):
    """The verdict on one call, and the reservoir that it was settled at."""

    verdict: Admit | Refuse
    waited: bool
    """Whether the call was not served from memory: its caller asked the store, or waited in the queue."""
    asked: bool
    """Whether an ask of the store spoke for it."""
    reservoir: Reservoir

    @classmethod
    def hit(cls, before: float, reservoir: Reservoir, *, waited: bool = False) -> "AdmissionResult":
        """Return the result of a call that was admitted by tokens in memory, which count until `before`."""
        return cls(Admit(before), waited, asked=False, reservoir=reservoir)

    @property
    def admitted(self) -> bool:
        """Whether the call may go ahead."""
        return isinstance(self.verdict, Admit)

    def decision(self, now: float) -> Decision:
        """Say all that a caller wants to be told."""
        retry_after = self.verdict.retry_after if isinstance(self.verdict, Refuse) else 0.0
        remaining = self.reservoir.forecast.remaining(now)
        return decision(self.reservoir.quota, remaining, retry_after, self.source)

    def refusal(self, key: str, now: float) -> RateLimited:
        """Return what to raise where the call was refused."""
        told = self.decision(now)
        return RateLimited(key, told.retry_after, told)

    @property
    def source(self) -> Source:
        """Who decided."""
        if self.reservoir.state.lease.borrowed:
            return "fallback"
        if self.asked:
            return "store"
        return "local" if self.admitted else "denied"
