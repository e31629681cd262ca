"""A reservation: an estimate is charged before, and settled when it is known what it really was."""

from collections.abc import Generator, Mapping
from typing import Any, Self

from batchlimit.base.steps import drive
from batchlimit.keyspace.reservation import BaseReservation, OneKeyReservation, SeveralKeysReservation


class _AsyncBlock(BaseReservation):
    """Is charged when it is awaited, else Python says so; and settled at the end of its `async with` block."""

    __slots__ = ()
    _follow = staticmethod(drive)

    def __await__(self) -> Generator[Any, Any, Self]:
        return self._charged().__await__()

    async def _charged(self) -> Self:
        if (charge := self._charge) is not None:
            await charge
            self._charge = None
        return self

    async def __aenter__(self) -> Self:
        self._check_open()  # a second block would be charged to nobody
        return await self._charged()

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._end(error)


class AsyncReservation(_AsyncBlock, OneKeyReservation):
    """What `AsyncRateLimiter.reserve` charges when it is awaited, or entered: settle it once, by hand or in the block.

    A block that ends without `settle` keeps the estimate. If the block raises or is cancelled, `on_error="refund"`
    takes the estimate back.

    Attributes:
        key: what the estimate is charged to.
        cost: the estimate, in tokens.

    Example:
        >>> from batchlimit import AsyncRateLimiter
        >>> async with AsyncRateLimiter.from_url("memory://", "20/hour") as limiter:
        ...     reservation = await limiter.reserve("ann", 5)
        ...     await reservation.settle(2)
        ...     (await limiter.decide("ann", 0)).remaining
        18
    """

    __slots__ = ()

    async def settle(self, actual: int) -> None:
        await self._correct({self.key: actual})


class AsyncJointReservation(_AsyncBlock, SeveralKeysReservation):
    """What `AsyncRateLimiter.reserve` charges of several keys when it is awaited, or entered: settle it once.

    A block that ends without `settle` keeps the estimates. If the block raises or is cancelled, `on_error="refund"`
    takes all of them back.

    Attributes:
        costs: the estimates, in tokens by key.

    Example:
        >>> from batchlimit import AsyncRateLimiter
        >>> async with AsyncRateLimiter.from_url("memory://", "20/hour") as limiter:
        ...     async with limiter.reserve({"model:rpm": 1, "model:tpm": 12}) as reservation:
        ...         await reservation.settle({"model:tpm": 9})
        ...     (await limiter.decide("model:tpm", 0)).remaining
        11
    """

    __slots__ = ()

    async def settle(self, actual: Mapping[str, int]) -> None:
        await self._correct(actual)
