"""A reservation: an estimate is charged before, and settled when it is known what it really was."""

from collections.abc import Mapping
from typing import Self

from batchlimit.base.steps import run
from batchlimit.keyspace.reservation import BaseReservation, OneKeyReservation, SeveralKeysReservation


class _Block(BaseReservation):
    """Is settled at the end of its `with` block."""

    __slots__ = ()
    _follow = staticmethod(run)

    def __enter__(self) -> Self:
        self._check_open()  # a second block would be charged to nobody
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._end(error)


class Reservation(_Block, OneKeyReservation):
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

    __slots__ = ()

    def settle(self, actual: int) -> None:
        self._correct({self.key: actual})


class JointReservation(_Block, SeveralKeysReservation):
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
        self._correct(actual)
