"""An API that a test drives by hand: callers in line, and what becomes of their asks."""

import math
from typing import Any

from batchlimit.base.waiting import NO_WAIT
from batchlimit.bucket.messages import GiveBack
from batchlimit.quota.overrides.override import KeyRule
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.sizing import BatchSizer, FixedBatch
from batchlimit.reservoir.waiter import Admit, Fetch, Verdict, Wait, Waiter
from tests.reservoir.world import Waking, answer, figures, made

HUNDRED = Quota(100.0, 100)
DEAD = ConnectionError("the store is away")
PATIENT = math.inf
WAITERS_ONLY = FixedBatch(0)


class Entry:
    """Drives a reservoir by hand; the lease of a hand-made answer is a second unless it says otherwise."""

    def __init__(
        self, quota: Quota | KeyRule = HUNDRED, tokens: int = 0, *, sizer: BatchSizer = WAITERS_ONLY, **rest: Any
    ) -> None:
        self.reservoir = made(quota, sizer=sizer, **rest)
        if tokens:
            waiter = self.join(1)
            self.reservoir.granted(self.fetch(waiter), answer(tokens + 1), 0.0, 1.0)
            assert waiter.verdict == Admit(1.0)
            self.reservoir.to_wake()

    def join(self, cost: int, deadline: float = PATIENT, **kind: bool) -> Waiter:
        waiter = Waiter(cost, deadline, Waking(), **kind)
        self.reservoir.admission.join(waiter)
        return waiter

    def step(self, waiter: Waiter, at: float = 0.0) -> Verdict | Wait | Fetch:
        return self.reservoir.step(waiter, at)

    def fetch(self, waiter: Waiter, at: float = 0.0) -> Fetch:
        step = self.step(waiter, at)
        assert isinstance(step, Fetch)
        return step

    def tend(self, at: float) -> Fetch:
        fetch = self.reservoir.lifecycle.tend(at)
        assert isinstance(fetch, Fetch)
        return fetch

    def grant(self, fetch: Fetch, at: float = 0.0, tokens: int = 0, **rest: Any) -> None:
        """By default the bucket still counts all that was held."""
        self.reservoir.granted(fetch, answer(tokens, **({"kept": fetch.ask.held} | rest)), at, 1.0)

    def refuse(self, fetch: Fetch, at: float = 0.0, retry_after: float = 0.5) -> None:
        self.grant(fetch, at, retry_after=retry_after, level=0)

    def refund(self, cost: int, at: float = 0.0) -> GiveBack | None:
        """A refund; what of it goes to the store is there at once."""
        back = self.reservoir.lifecycle.refund(Waiter(cost, NO_WAIT, Waking()), at)
        if back is not None:
            self.reservoir.gave_back(at)
        return back

    def woken(self) -> list[Waiter]:
        return list(dict.fromkeys(self.reservoir.to_wake()))

    @property
    def held(self) -> int:
        return figures(self.reservoir).held

    @property
    def counted(self) -> tuple[int, int]:
        """Tokens admitted and refused."""
        return figures(self.reservoir)[:2]
