"""A reservation: an estimate is charged before, and settled when it is known what it really was."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Self

from batchlimit.aio.store_calls import arrived
from batchlimit.base.redaction import shown
from batchlimit.base.unique import Unique
from batchlimit.errors import BatchLimitError
from batchlimit.events import log_event, named
from batchlimit.reservoir.estimate import SETTLE_THERE, Estimate, OnError


class AsyncReservation(Unique):
    """What `AsyncRateLimiter.reserve` charges when it is awaited, or entered: settle it once, by hand or in the block.

    A block that ends without `settle` keeps the estimate. If the block raises or is cancelled, `on_error="refund"`
    takes the estimate back.

    Attributes:
        key: what the estimate is charged to.

    Example:
        >>> import asyncio
        >>> from batchlimit import AsyncRateLimiter
        >>> async def main():
        ...     async with AsyncRateLimiter.from_url("memory://", "20/hour") as limiter:
        ...         reservation = await limiter.reserve("ann", 5)
        ...         await reservation.settle(2)
        ...         return (await limiter.decide("ann", 0)).remaining
        >>> asyncio.run(main())
        18
    """

    __slots__ = ("_adjust", "_charge", "_estimate", "key")
    _instead = SETTLE_THERE

    def __init__(
        self,
        key: str,
        cost: int,
        on_error: OnError,
        charge: Coroutine[Any, Any, None],
        adjust: "Callable[[str, int], asyncio.Task[int | Exception] | None]",
    ) -> None:
        self.key = key
        self._charge: Coroutine[Any, Any, None] | None = charge  # if nobody awaits it, Python says so
        self._adjust = adjust
        try:
            self._estimate = Estimate(cost, on_error)
        except BaseException:
            charge.close()
            raise

    def __repr__(self) -> str:
        return f"<AsyncReservation at {shown(self.key)}: {self._estimate}>"

    @property
    def cost(self) -> int:
        """The estimate, in tokens."""
        return self._estimate.cost

    @property
    def settled(self) -> bool:
        """Whether what is charged is final."""
        return self._estimate.settled

    async def settle(self, actual: int) -> None:
        """Say how many tokens it really was: the difference is refunded, or charged.

        Tokens beyond the estimate are charged at once if they are there, else as they come in. Later callers wait for
        that; this call does not.

        Args:
            actual: whole tokens, 0 or more.

        Raises:
            RuntimeError: it was not charged yet, it was settled before, or its block has ended.
            LimiterClosed, ValueError, TypeError: as AsyncRateLimiter says.
        """
        if self._charge is not None:
            raise RuntimeError("this reservation was not charged: write `await` or `async with` before reserve()")
        await arrived(self.key, self._adjust(self.key, self._estimate.settle(actual)))

    def __await__(self) -> Generator[Any, Any, Self]:
        return self._charged().__await__()

    async def _charged(self) -> Self:
        if (charge := self._charge) is not None:
            await charge
            self._charge = None
        return self

    async def __aenter__(self) -> Self:
        self._estimate.check_open()  # a second block would be charged to nobody
        return await self._charged()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if back := self._estimate.close(failed=error is not None):
            try:
                self._adjust(self.key, -back)  # whose way to the store a cancelled task does not wait for
            except BatchLimitError as away:  # the block's own error is the one to be seen
                told, message = (back, named(self.key), away), "%d tokens of %s were not refunded: %s"
                log_event("tokens.not_refunded", message, *told, key=self.key, tokens=back, reason=str(away))
