"""A reservation: an estimate is charged before, and settled when it is known what it really was."""

from collections.abc import Callable, Mapping
from typing import Self

from batchlimit.errors import BatchLimitError
from batchlimit.keyspace.reservation import BaseReservation, OnError


class _Reserved(BaseReservation):
    """Gives back what was charged, at the end of its `with` block."""

    __slots__ = ()

    def __enter__(self) -> Self:
        self._check_open()  # a second block would be charged to nobody
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._end(error)

    def _correct(self, actual: Mapping[str, int]) -> None:
        """Correct all keys, then raise what went wrong first."""
        failed: BatchLimitError | None = None
        for key, tokens in self._difference(actual).items():
            try:
                self._adjust(key, tokens)
            except BatchLimitError as error:
                failed = failed or error
        if failed is not None:
            raise failed


class Reservation(_Reserved):
    """What `RateLimiter.reserve` charged: settle it once, by hand or within a `with` block.

    A block that ends without `settle` keeps the estimate. If the block raises, `on_error="refund"` takes the estimate
    back.

    Attributes:
        key: what the estimate was charged to.
        cost: the estimate, in tokens.

    Example:
        >>> from batchlimit import RateLimiter
        >>> limiter = RateLimiter.from_url("memory://", "20/hour")
        >>> reservation = limiter.reserve("ann", 5)
        >>> reservation.settle(2)
        >>> reservation.settled, limiter.decide("ann", 0).remaining
        (True, 18)
    """

    __slots__ = ("cost", "key")

    def __init__(self, costs: dict[str, int], on_error: OnError, adjust: Callable[[str, int], None]) -> None:
        super().__init__(costs, on_error, adjust)
        ((self.key, self.cost),) = costs.items()

    def settle(self, actual: int) -> None:
        """Say how many tokens it really was: the difference is refunded, or charged.

        Tokens beyond the estimate are charged at once if they are there, else as they come in. Later callers wait for
        that; this call does not.

        Args:
            actual: whole tokens, 0 or more.

        Raises:
            RuntimeError: it was settled before, or its block has ended.
            StoreUnavailable, LimiterClosed, ValueError, TypeError: as RateLimiter says.
        """
        self._correct({self.key: actual})


class JointReservation(_Reserved):
    """What `RateLimiter.reserve` charged of several keys: settle it once, by hand or within a `with` block.

    A block that ends without `settle` keeps the estimates. If the block raises, `on_error="refund"` takes all of them
    back.

    Attributes:
        costs: the estimates, in tokens by key.

    Example:
        >>> from batchlimit import RateLimiter
        >>> limiter = RateLimiter.from_url("memory://", "20/hour")
        >>> with limiter.reserve({"model:rpm": 1, "model:tpm": 12}) as reservation:
        ...     reservation.settle({"model:tpm": 9})
        >>> limiter.decide("model:rpm", 0).remaining, limiter.decide("model:tpm", 0).remaining
        (19, 11)
    """

    __slots__ = ()

    def settle(self, actual: Mapping[str, int]) -> None:
        """Say how many tokens it really was: the differences are refunded, or charged, as by a Reservation.

        Args:
            actual: whole tokens by key, 0 or more; a key that is not named stays as it was estimated.

        Raises:
            RuntimeError: it was settled before, or its block has ended.
            ValueError: nothing was reserved at such a key.
            StoreUnavailable, LimiterClosed, TypeError: as RateLimiter says.
        """
        self._correct(actual)
