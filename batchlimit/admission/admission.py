"""Tokens and a permit at once, for threads and for asyncio."""

import asyncio
from collections.abc import Callable, Generator, Mapping
from types import TracebackType
from typing import Any, Generic, TypeVar, overload

from batchlimit.admission.permit import ASYNC, THREADED, BaseAdmission, Names, Rate, check_kind
from batchlimit.aio.limiter import AsyncRateLimiter
from batchlimit.base.setting import of_kind
from batchlimit.base.steps import Steps, drive, run
from batchlimit.base.unique import Unique
from batchlimit.concurrency.async_limiter import AsyncConcurrencyLimiter, AsyncPermit
from batchlimit.concurrency.keyed.limiter import AsyncKeyedConcurrencyLimiter, KeyedConcurrencyLimiter
from batchlimit.concurrency.keyed.permits import AsyncPermits, Permits
from batchlimit.concurrency.limiter import ConcurrencyLimiter
from batchlimit.concurrency.permit import Permit
from batchlimit.keyspace.reservation import not_refunded
from batchlimit.shared.limiter import AsyncSharedConcurrencyLimiter, SharedConcurrencyLimiter
from batchlimit.shared.permit import AsyncSharedPermit, SharedPermit
from batchlimit.sync.limiter import RateLimiter

P = TypeVar("P", bound="Permit | Permits | SharedPermit")
A = TypeVar("A", bound="AsyncPermit | AsyncPermits | AsyncSharedPermit")


class Admission(BaseAdmission, Generic[P]):
    """Admits calls that need tokens and a permit at once: both or none.

    It never holds a permit while it waits for tokens, nor tokens while it waits for a permit. Both limiters may serve
    others too, and their owner closes them.

    Args:
        rates: The rate limiter.
        concurrency: A ConcurrencyLimiter, KeyedConcurrencyLimiter or SharedConcurrencyLimiter.

    Raises:
        TypeError: An argument is of another kind, or of the other API.

    Example:
        >>> from batchlimit import ConcurrencyLimiter, RateLimited, RateLimiter
        >>> from batchlimit.admission import Admission
        >>> from batchlimit.laws import Fixed
        >>> with RateLimiter.from_url("memory://", "1/hour") as rates, ConcurrencyLimiter(Fixed(2)) as backend:
        ...     exports = Admission(rates, backend)
        ...     with exports.admit("user:ann", timeout=0.5):
        ...         pass  # a token is paid, and a place is held until here
        ...     try:
        ...         exports.admit("user:ann", timeout=0.5)
        ...     except RateLimited as refusal:
        ...         print(refusal.key, backend.statistics().in_flight)
        user:ann 0
    """

    @overload
    def __init__(self: "Admission[Permit]", rates: RateLimiter, concurrency: ConcurrencyLimiter) -> None: ...

    @overload
    def __init__(
        self: "Admission[Permit | Permits]", rates: RateLimiter, concurrency: KeyedConcurrencyLimiter
    ) -> None: ...

    @overload
    def __init__(
        self: "Admission[SharedPermit]", rates: RateLimiter, concurrency: SharedConcurrencyLimiter
    ) -> None: ...

    def __init__(self, rates: RateLimiter, concurrency: Any) -> None:
        of_kind("rates", rates, RateLimiter, "of RateLimiter")
        check_kind("concurrency", concurrency, THREADED)
        super().__init__(rates, concurrency)

    def admit(
        self, rate: Rate, concurrency: Names = "", *, cost: int = 1, timeout: float | None = None, **options: Any
    ) -> P:
        """Wait until a call has its tokens and its permit; return the permit.

        Args:
            rate: The key that is charged, or several as whole tokens by key: {"user:ann": 1, "all": 1}.
            concurrency: The key of the permit, or several keys of a keyed limiter; for a ConcurrencyLimiter the
                partition (default "": none).
            cost: Whole tokens, where `rate` is one key (default 1).
            timeout: How long to wait at most (seconds); 0: for answers of the store alone (default None: no limit but
                those of the queues).
            options: As `acquire` of the concurrency limiter takes them, such as `operation`. A `priority` from 1 to 100
                holds where the call waits for tokens too.

        Returns:
            The permit, as from `acquire` of the concurrency limiter: the end of its `with` block gives it back. The
            tokens stay charged, whatever the call does.

        Raises:
            RateLimited: There are no tokens in time; `key` and `retry_after` say more.
            ConcurrencyLimited: There is no permit in time.
            StoreUnavailable: A store is away, and `on_failure` is "closed".
            LimiterClosed: One of the limiters was closed.
            TypeError, ValueError: An argument cannot work.
        """
        permit: P = run(self._begin(rate, concurrency, cost, timeout, options)())
        return permit

    def _refund(self, costs: Mapping[str, int]) -> None:
        run(self._refunding(costs))


class AsyncAdmitted(Unique, Generic[A]):
    """A call that `AsyncAdmission.admit` lets in: to be awaited, or to be the context of an `async with` block.

    The task enters at `async with` or `await`, no sooner. Both return the permit. The end of the block completes it.

    Example:
        >>> from batchlimit import AsyncConcurrencyLimiter, AsyncRateLimiter
        >>> from batchlimit.admission import AsyncAdmission
        >>> rates = AsyncRateLimiter.from_url("memory://", "1/hour")
        >>> async with rates, AsyncConcurrencyLimiter() as backend:
        ...     permit = await AsyncAdmission(rates, backend).admit("user:ann")
        ...     permit.success()
        ...     backend.statistics().succeeded
        1
    """

    __slots__ = ("_begin", "_permit")
    _instead = "enter where it was made"

    def __init__(self, begin: Callable[[], Steps[A]]) -> None:
        self._begin = begin
        self._permit: A | None = None

    def __repr__(self) -> str:
        return f"<AsyncAdmitted: {self._permit or 'not entered'}>"

    def __await__(self) -> Generator[Any, Any, A]:
        return self._enter().__await__()

    async def _enter(self) -> A:
        if self._permit is not None:
            raise RuntimeError(f"{self!r} was entered before")
        self._permit = permit = await drive(self._begin())
        return permit

    async def __aenter__(self) -> A:
        permit = await self._enter()
        await permit.__aenter__()
        return permit

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._permit is not None
        await self._permit.__aexit__(kind, error, trace)


class AsyncAdmission(BaseAdmission, Generic[A]):
    """Admits calls that need tokens and a permit at once, for asyncio: both or none, as Admission does.

    Args:
        rates: The AsyncRateLimiter.
        concurrency: An AsyncConcurrencyLimiter, AsyncKeyedConcurrencyLimiter or AsyncSharedConcurrencyLimiter.

    Raises:
        TypeError: An argument is of another kind, or of the other API.

    Example:
        >>> from batchlimit import AsyncRateLimiter
        >>> from batchlimit.admission import AsyncAdmission
        >>> from batchlimit.shared import AsyncSharedConcurrencyLimiter
        >>> rates = AsyncRateLimiter.from_url("memory://", "1/hour")
        >>> async with rates, AsyncSharedConcurrencyLimiter.from_url("memory://", {"export:*": 10}) as permits:
        ...     exports = AsyncAdmission(rates, permits)
        ...     async with exports.admit("user:ann", "export:ann", timeout=0.5) as permit:
        ...         permit.lost
        False
    """

    @overload
    def __init__(
        self: "AsyncAdmission[AsyncPermit]", rates: AsyncRateLimiter, concurrency: AsyncConcurrencyLimiter
    ) -> None: ...

    @overload
    def __init__(
        self: "AsyncAdmission[AsyncPermit | AsyncPermits]",
        rates: AsyncRateLimiter,
        concurrency: AsyncKeyedConcurrencyLimiter,
    ) -> None: ...

    @overload
    def __init__(
        self: "AsyncAdmission[AsyncSharedPermit]", rates: AsyncRateLimiter, concurrency: AsyncSharedConcurrencyLimiter
    ) -> None: ...

    def __init__(self, rates: AsyncRateLimiter, concurrency: Any) -> None:
        of_kind("rates", rates, AsyncRateLimiter, "of AsyncRateLimiter")
        check_kind("concurrency", concurrency, ASYNC)
        super().__init__(rates, concurrency)
        self._refunds: set[asyncio.Task[None]] = set()

    def admit(
        self, rate: Rate, concurrency: Names = "", *, cost: int = 1, timeout: float | None = None, **options: Any
    ) -> AsyncAdmitted[A]:
        """Return what a task awaits, or enters by `async with`, to have its tokens and its permit.

        Args:
            rate, concurrency, cost, timeout: As of `Admission.admit`, with the same defaults.
            options: As `acquire` of the concurrency limiter takes them, such as `operation` or `cancel`.

        Returns:
            An AsyncAdmitted. Where the task enters it raises what `Admission.admit` raises. The tokens stay charged,
            whatever the call does.

        Raises:
            TypeError, ValueError: An argument cannot work.
        """
        return AsyncAdmitted(self._begin(rate, concurrency, cost, timeout, options))

    def _refund(self, costs: Mapping[str, int]) -> "asyncio.Future[None] | None":
        """Do so in a task that is not cancelled with the caller; None: its loop has ended."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError as error:
            for key, tokens in costs.items():
                not_refunded(key, tokens, error)
            return None
        task = loop.create_task(drive(self._refunding(costs)))
        self._refunds.add(task)
        task.add_done_callback(self._refunds.discard)
        return asyncio.shield(task)
