"""Reservations, for threads and for tasks: an estimate is charged before, and settled when it is known what it was."""

import math
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, Self, get_args

from batchlimit.base.key import NeverFits, check_costs, check_key
from batchlimit.base.redaction import shown
from batchlimit.base.setting import whole
from batchlimit.base.steps import Steps, drive, followed, run
from batchlimit.base.unique import Unique
from batchlimit.errors import BatchLimitError, Unfit
from batchlimit.events import log_event, named
from batchlimit.quota.grammar import LARGEST_BURST

OnError = Literal["keep", "refund"]
"""What becomes of an estimate whose block ended in an exception: it stays charged, or is taken back."""

Adjust = Callable[[str, int], Callable[[], Any] | None]
"""Charges a key so many tokens more, or refunds them; returns what a task awaits until that has arrived."""


class BaseReservation(Unique):
    """A charge of one key or several, in either API, and its block. Costs are whole tokens."""

    __slots__ = ("_adjust", "_charge", "_costs", "_on_error", "_settled", "costs")
    _instead = "settle it where it was made, and send the actual cost there"
    _follow: ClassVar[Any]
    """Calls steps, or awaits them."""

    def __init__(
        self, costs: dict[str, int], on_error: OnError, adjust: Adjust, charge: Coroutine[Any, Any, None] | None = None
    ) -> None:
        """`adjust` charges a key so many tokens more; less than 0 are refunded. A task awaits the `charge` first."""
        self._costs, self._on_error, self._adjust, self._charge = costs, on_error, adjust, charge
        self.costs = dict(costs)  # the caller's to look at
        self._settled = False

    def __repr__(self) -> str:
        told = ", ".join(f"{cost} at {shown(key)}" for key, cost in self._costs.items())
        return f"<{type(self).__name__} of {told}: {'settled' if self._settled else 'open'}>"

    @property
    def settled(self) -> bool:
        """Whether what is charged is final."""
        return self._settled

    def _check_open(self) -> None:
        if self._settled:
            raise RuntimeError("this reservation was settled before, by settle() or at the end of its block")

    def _difference(self, actual: Mapping[str, object]) -> dict[str, int]:
        """Settle; return by key how much is still to be charged, less than 0 if it is to be refunded.

        A key that is not named stays as it was estimated. Raises RuntimeError a second time.
        """
        if not isinstance(actual, Mapping):
            raise TypeError(f"settle needs whole tokens by key, like {{'model:tpm': 900}}, not {shown(actual)}")
        checked = {key: whole("actual (tokens)", each, 0, LARGEST_BURST) for key, each in actual.items()}
        if unknown := sorted(checked.keys() - self._costs.keys()):
            raise ValueError(f"nothing was reserved at {shown(unknown[0])}, but at {shown(list(self._costs))}")
        self._check_open()
        self._settled = True
        return {key: tokens - self._costs[key] for key, tokens in checked.items()}

    @followed
    def _correct(self, actual: Mapping[str, object]) -> Steps[None]:
        """Correct all keys, then raise what went wrong first. All is on its way before a task awaits anything."""
        if self._charge is not None:
            raise RuntimeError("this reservation was not charged: write `await` or `async with` before reserve()")
        failures, under_way = list[BatchLimitError](), list[Any]()
        for key, tokens in self._difference(actual).items():
            try:
                under_way.append(self._adjust(key, tokens))
            except BatchLimitError as error:
                failures.append(error)
        for arrived in filter(None, under_way):
            try:
                yield arrived()
            except BatchLimitError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _end(self, error: BaseException | None) -> None:
        """End the block, which raised this. An estimate that nobody settled is what it was, or is taken back."""
        is_taken_back = error is not None and not self._settled and self._on_error == "refund"
        self._settled = True
        for key, cost in self._costs.items():
            if is_taken_back and cost:
                try:
                    self._adjust(key, -cost)  # whose way to the store a cancelled task does not wait for
                except BatchLimitError as away:  # the block's own error is the one to be seen
                    not_refunded(key, cost, away)


class OneKeyReservation(BaseReservation):
    """A reservation of one key."""

    __slots__ = ("cost", "key")

    def __init__(self, costs: dict[str, int], *made_with: Any) -> None:
        super().__init__(costs, *made_with)
        ((self.key, self.cost),) = costs.items()

    def settle(self, actual: int) -> Any:
        """Say how many tokens it really was: the difference is refunded, or charged.

        Tokens beyond the estimate are charged at once if they are there, else as they come in. Later callers wait for
        that; this call does not.

        Args:
            actual: whole tokens, 0 or more.

        Raises:
            RuntimeError: it was settled before, its block has ended, or it was to be awaited first.
            StoreUnavailable, LimiterClosed, ValueError, TypeError: as the limiter says.
        """


class SeveralKeysReservation(BaseReservation):
    """A reservation of several keys."""

    __slots__ = ()

    def settle(self, actual: Mapping[str, int]) -> Any:
        """Say how many tokens it really was: the differences are refunded, or charged, as at one key.

        Args:
            actual: whole tokens by key, 0 or more; a key that is not named stays as it was estimated.

        Raises:
            RuntimeError: it was settled before, its block has ended, or it was to be awaited first.
            ValueError: nothing was reserved at such a key.
            StoreUnavailable, LimiterClosed, TypeError: as the limiter says.
        """


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


def not_refunded(key: str, tokens: int, error: Exception) -> None:
    """Tell the log of tokens that could not be given back: the caller has an answer already."""
    message = "%d tokens of %s were not refunded: %s"
    log_event("tokens.not_refunded", message, tokens, named(key), error, key=key, tokens=tokens, reason=str(error))


def estimated(key: object, cost: object, on_error: OnError) -> dict[str, Any]:
    """Return what is estimated by key: at one key, or at those of a mapping or of pairs if no cost is given."""
    if on_error not in get_args(OnError):
        raise ValueError(f"on_error must be 'keep' or 'refund', not {shown(on_error)}")
    if cost is not None:
        return {check_key(key): cost}
    if isinstance(key, str):
        raise TypeError(f"reserve({shown(key)}, ...) needs a cost")
    return check_costs(key)


@contextmanager
def fitting(registry: Any, costs: dict[str, int]) -> Iterator[None]:
    """Have a charge, which is the block, raise Unfit where an estimate is above the burst of its key."""
    entries = {key: registry.entry(key) for key in costs}  # what is settled for less stays there
    try:
        yield
    except NeverFits as never:
        told = entries[never.key].reservoir.forecast.told(math.inf, "denied", registry.clock())
        raise Unfit(never.key, never.cost, never.largest, told) from None
