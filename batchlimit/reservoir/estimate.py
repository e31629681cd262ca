"""A charge that was estimated, and is settled once its cost is known."""

from typing import Literal, get_args

from batchlimit.base.redaction import shown

OnError = Literal["keep", "refund"]
"""What becomes of an estimate whose block ended in an exception: it stays charged, or is taken back."""

SETTLE_THERE = "settle it where it was made, and send the actual cost there"
"""What to do instead of sending a reservation to another process."""


class Estimate:
    """A charge, and whether it is final. Costs are whole tokens."""

    __slots__ = ("cost", "on_error", "settled")

    def __init__(self, cost: int, on_error: OnError) -> None:
        if on_error not in get_args(OnError):
            raise ValueError(f"on_error must be 'keep' or 'refund', not {shown(on_error)}")
        self.cost = cost
        self.on_error = on_error
        self.settled = False

    def __repr__(self) -> str:
        return f"<Estimate of {self.cost}, {'settled' if self.settled else 'open'}>"

    def settle(self, actual: object) -> int:
        """Return how much is still to be charged, less than 0 if it is to be refunded; RuntimeError a second time."""
        if isinstance(actual, bool) or not isinstance(actual, int):
            raise TypeError(f"actual must be a whole number of tokens, not {shown(actual)}")
        if actual < 0:
            raise ValueError(f"actual must be at least 0 tokens, not {actual}")
        self.check_open()
        self.settled = True
        return actual - self.cost

    def check_open(self) -> None:
        """Raise RuntimeError where it was settled before."""
        if self.settled:
            raise RuntimeError("this reservation was settled before, by settle() or at the end of its block")

    def close(self, *, failed: bool) -> int:
        """End the block: return how much is to be refunded. An estimate that nobody settled is what it was."""
        back = self.cost if failed and not self.settled and self.on_error == "refund" else 0
        self.settled = True
        return back
