"""What the calls of a rate limiter take, return and raise, in both APIs. A task awaits the answers."""

from typing import Any

from batchlimit.base.key import Costs
from batchlimit.keyspace.reservation import OnError


class LimiterCalls:
    """The calls that concern one key. Each of them also raises what the class of the limiter says."""

    def try_acquire(self, key: str, cost: int = 1) -> Any:
        """Admit the call or not, now: usually from memory, else after a bounded round trip or two; never after a sleep.

        Args:
            key: what is limited, such as "search:ann".
            cost: whole tokens (default 1); 0 is always admitted.

        Returns:
            Whether the call may go ahead. False also while the store is away and `on_failure` is "closed".

        Example:
            >>> limiter = RateLimiter.from_url("memory://", "2/hour")
            >>> [limiter.try_acquire("ann") for _ in range(3)]
            [True, True, False]
        """

    def acquire(self, key: str, cost: int = 1, *, timeout: float | None = None, priority: int = 1) -> Any:
        """Wait until the call is admitted. Callers of one priority are served in order of arrival.

        Args:
            key: what is limited.
            cost: whole tokens (default 1); 0 is always admitted.
            timeout: seconds to wait at most; 0 does not wait (default None: no limit).
            priority: from 1 (default) to 100: how many tokens this caller gets for each of one of priority 1 while both
                wait, in whichever process.

        Raises:
            RateLimited: `timeout` cannot be met; raised as soon as that is known. `retry_after` says when to return.
            StoreUnavailable: the store is away and `on_failure` is "closed" for this key.

        Example:
            >>> limiter = RateLimiter.from_url("memory://", "1/hour")
            >>> limiter.acquire("ann")
            >>> limiter.acquire("ann", timeout=0.5)
            Traceback (most recent call last):
            ...
            batchlimit.errors.RateLimited: 'ann' is over its quota; retry after 3...
        """

    def decide(self, key: str, cost: int = 1) -> Any:
        """Admit the call or not, like try_acquire, and say what a caller wants to be told.

        Args:
            key: what is limited.
            cost: whole tokens (default 1); 0 is always admitted.

        Returns:
            A Decision, which is true if the call may go ahead.

        Raises:
            StoreUnavailable: the store is away and `on_failure` is "closed" for this key.

        Example:
            >>> limiter = RateLimiter.from_url("memory://", "2/hour")
            >>> decision = limiter.decide("ann")
            >>> decision.allowed, decision.limit, decision.remaining
            (True, 2, 1)
        """

    def peek(self, key: str) -> Any:
        """Say how the next call of cost 1 would fare. Nothing is charged.

        Args:
            key: what is limited.

        Returns:
            A Decision by what is in the bucket and in this process; it takes one round trip.

        Raises:
            StoreUnavailable: the store is away and `on_failure` is "closed" for this key.

        Example:
            >>> limiter = RateLimiter.from_url("memory://", "2/hour")
            >>> limiter.peek("ann").remaining
            2
        """

    def refund(self, key: str, cost: int = 1) -> Any:
        """Take back a call that was admitted and did not happen.

        Refund what was admitted, once, and no more. The bucket takes back at most what makes it full.

        Args:
            key: what the call was charged to.
            cost: whole tokens (default 1), as at the call.

        Example:
            >>> limiter = RateLimiter.from_url("memory://", "1/hour")
            >>> limiter.try_acquire("ann")
            True
            >>> limiter.refund("ann")
            >>> limiter.try_acquire("ann")
            True
        """

    def pause(self, key: str, seconds: float, *, why: str = "") -> Any:
        """Have nobody admitted at a key for a time, by any process: as where an upstream says "Retry-After".

        Of two pauses the one that ends later counts. Callers with enough timeout wait through it, in order of arrival;
        others are refused, and `retry_after` tells of its end. Then calls begin at the rate of the quota, not with a
        burst: of several bandwidths the one that fills fastest begins empty. Other processes learn it by their next
        request. Until then they spend what they have leased, for at most 1.5 s. A key in mode "shadow" or "open" admits
        all the same.

        Args:
            key: what is limited.
            seconds: until the pause ends, by the server's clock; above 0, and of more than ten years so many.
            why: the reason, which `batchlimit get` shows (one line, default "").

        Raises:
            StoreUnavailable: the store is away; this process pauses all the same, whatever `on_failure` says.
            ValueError: the store cannot pause keys.

        Example:
            >>> limiter = RateLimiter.from_url("memory://", "100/s")
            >>> limiter.pause("api.example.com", 30, why="429 of upstream")
            >>> decision = limiter.decide("api.example.com")
            >>> decision.allowed, round(decision.retry_after)
            (False, 30)
        """

    def resume(self, key: str) -> Any:
        """End the pause of a key, for all processes; calls begin at the rate of the quota.

        Args:
            key: what is limited.

        Returns:
            Whether there was a pause.

        Raises:
            StoreUnavailable: the store is away.
            ValueError: the store cannot pause keys.

        Example:
            >>> limiter = RateLimiter.from_url("memory://", "100/s")
            >>> limiter.pause("api.example.com", 3600)
            >>> limiter.resume("api.example.com")
            True
            >>> limiter.acquire("api.example.com", timeout=1)
        """

    def reserve(
        self,
        key: str | Costs,
        cost: int | None = None,
        *,
        timeout: float | None = None,
        priority: int = 1,
        on_error: OnError = "keep",
    ) -> Any:
        """Charge an estimate now, as `acquire` does, and settle later what it really was.

        Args:
            key: what is limited; or the estimates of several keys, as a dict or as pairs: all are charged, or none.
            cost: the estimate, in whole tokens; none with several keys.
            timeout: seconds to wait at most; 0 does not wait (default None: no limit).
            priority: as of `acquire`.
            on_error: what becomes of the estimate if the block raises or is cancelled: "keep" (default) or "refund".

        Returns:
            A Reservation, or for several keys a JointReservation, to be used in a `with` block or kept. An
            AsyncReservation charges the estimate when it is awaited, or entered by `async with`.

        Raises:
            Unfit: an estimate is above the burst of its key.
            RateLimited: `timeout` cannot be met.
            StoreUnavailable: the store is away and `on_failure` is "closed" for this key.

        Example:
            >>> limiter = RateLimiter.from_url("memory://", "20/hour")
            >>> with limiter.reserve("ann", 5) as reservation:
            ...     reservation.settle(2)
            >>> limiter.decide("ann", 0).remaining
            18
        """
