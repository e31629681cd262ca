"""A reservation: an estimate is charged before, and settled when it is known what it really was."""

from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from typing import Any, Self

from batchlimit.errors import BatchLimitError
from batchlimit.keyspace.reservation import BaseReservation, OnError

_Adjust = Callable[[str, int], Callable[[str], Awaitable[None]] | None]
_Charge = Coroutine[Any, Any, None]


class _AsyncReserved(BaseReservation):
    """What is charged when it is awaited, and its `async with` block."""

    __slots__ = ("_charge",)

    def __init__(self, costs: dict[str, int], on_error: OnError, adjust: _Adjust, charge: _Charge) -> None:
        super().__init__(costs, on_error, adjust)
        self._charge: _Charge | None = charge  # if nobody awaits it, Python says so

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

    async def _correct(self, actual: Mapping[str, int]) -> None:
        """Correct all keys, then raise what went wrong first. All is on its way before anything is awaited."""
        if self._charge is not None:
            raise RuntimeError("this reservation was not charged: write `await` or `async with` before reserve()")
        under_way = [(key, self._adjust(key, tokens)) for key, tokens in self._difference(actual).items()]
        failed: BatchLimitError | None = None
        for key, arrived in under_way:
            try:
                if arrived is not None:
                    await arrived(key)
            except BatchLimitError as error:
                failed = failed or error
        if failed is not None:
            raise failed


class AsyncReservation(_AsyncReserved):
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

    __slots__ = ("cost", "key")

    def __init__(self, costs: dict[str, int], on_error: OnError, adjust: _Adjust, charge: _Charge) -> None:
        super().__init__(costs, on_error, adjust, charge)
        ((self.key, self.cost),) = costs.items()

    async def settle(self, actual: int) -> None:
        """Say how many tokens it really was: the difference is refunded, or charged.

        Tokens beyond the estimate are charged at once if they are there, else as they come in. Later callers wait for
        that; this call does not.

        Args:
            actual: whole tokens, 0 or more.

        Raises:
            RuntimeError: it was not charged yet, it was settled before, or its block has ended.
            StoreUnavailable, LimiterClosed, ValueError, TypeError: as AsyncRateLimiter says.
        """
        await self._correct({self.key: actual})


class AsyncJointReservation(_AsyncReserved):
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
        """Say how many tokens it really was: the differences are refunded, or charged, as by an AsyncReservation.

        Args:
            actual: whole tokens by key, 0 or more; a key that is not named stays as it was estimated.

        Raises:
            RuntimeError: it was not charged yet, it was settled before, or its block has ended.
            ValueError: nothing was reserved at such a key.
            StoreUnavailable, LimiterClosed, TypeError: as AsyncRateLimiter says.
        """
        await self._correct(actual)
