"""Admission: tokens and a permit at once, for threads."""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar, overload

from batchlimit.admission.attempt import Attempt, refunds
from batchlimit.admission.permit import THREADED, Names, Rate, acquirer, checked_pair, costs_of, rank_of
from batchlimit.base.steps import run
from batchlimit.concurrency.keyed.limiter import KeyedConcurrencyLimiter
from batchlimit.concurrency.keyed.permits import Permits
from batchlimit.concurrency.limiter import ConcurrencyLimiter
from batchlimit.concurrency.permit import Permit
from batchlimit.shared.limiter import SharedConcurrencyLimiter
from batchlimit.shared.permit import SharedPermit
from batchlimit.sync.limiter import RateLimiter

P = TypeVar("P", bound="Permit | Permits | SharedPermit")


class Admission(Generic[P]):
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
        checked_pair(rates, concurrency, RateLimiter, THREADED)
        self._rates, self._concurrency = rates, concurrency

    def __repr__(self) -> str:
        return f"<Admission by {self._rates!r} and {self._concurrency!r}>"

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
        asks = acquirer(self._concurrency, concurrency, options)
        attempt: Attempt[P] = Attempt(self._rates, costs_of(rate, cost), asks, self._refund, timeout, rank_of(options))
        return run(attempt.steps())

    def _refund(self, costs: Mapping[str, int]) -> None:
        run(refunds(self._rates, costs))
