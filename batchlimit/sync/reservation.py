"""A reservation: an estimate is charged before, and settled when it is known what it really was."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from batchlimit.base.redaction import shown
from batchlimit.base.unique import Unique
from batchlimit.errors import BatchLimitError
from batchlimit.events import log_event, named
from batchlimit.reservoir.estimate import SETTLE_THERE, Estimate, OnError


class Reservation(Unique):
    """What `RateLimiter.reserve` charged: settle it once, by hand or within a `with` block.

    A block that ends without `settle` keeps the estimate. If the block raises, `on_error="refund"` takes the estimate
    back.

    Attributes:
        key: what the estimate was charged to.

    Example:
        >>> from batchlimit import RateLimiter
        >>> limiter = RateLimiter.from_url("memory://", "20/hour")
        >>> reservation = limiter.reserve("ann", 5)
        >>> reservation.settle(2)
        >>> reservation.settled, limiter.decide("ann", 0).remaining
        (True, 18)
    """

    __slots__ = ("_adjust", "_estimate", "key")
    _instead = SETTLE_THERE

    def __init__(self, key: str, cost: int, on_error: OnError, adjust: Callable[[str, int], None]) -> None:
        self.key = key
        self._estimate = Estimate(cost, on_error)
        self._adjust = adjust

    def __repr__(self) -> str:
        return f"<Reservation at {shown(self.key)}: {self._estimate}>"

    @property
    def cost(self) -> int:
        """The estimate, in tokens."""
        return self._estimate.cost

    @property
    def settled(self) -> bool:
        """Whether what is charged is final."""
        return self._estimate.settled

    def settle(self, actual: int) -> None:
        """Say how many tokens it really was: the difference is refunded, or charged.

        Tokens beyond the estimate are charged at once if they are there, else as they come in. Later callers wait for
        that; this call does not.

        Args:
            actual: whole tokens, 0 or more.

        Raises:
            RuntimeError: it was settled before, or its block has ended.
            LimiterClosed, ValueError, TypeError: as RateLimiter says.
        """
        self._adjust(self.key, self._estimate.settle(actual))

    def __enter__(self) -> Self:
        self._estimate.check_open()  # a second block would be charged to nobody
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if back := self._estimate.close(failed=error is not None):
            try:
                self._adjust(self.key, -back)
            except BatchLimitError as away:  # the block's own error is the one to be seen
                told, message = (back, named(self.key), away), "%d tokens of %s were not refunded: %s"
                log_event("tokens.not_refunded", message, *told, key=self.key, tokens=back, reason=str(away))
