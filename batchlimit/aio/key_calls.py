"""The calls of an AsyncRateLimiter that concern one key, with the hit path."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from threading import get_ident
from typing import Any, overload

from batchlimit.aio.awaitable import Answer, Pending
from batchlimit.aio.registry import Registry
from batchlimit.aio.reservation import AsyncJointReservation, AsyncReservation
from batchlimit.aio.slow_path import SlowPath
from batchlimit.base.decision import Decision
from batchlimit.base.waiting import NO_WAIT
from batchlimit.keyspace.base_limiter import BaseRateLimiter
from batchlimit.quota.key import NeverFits
from batchlimit.reservoir.estimate import Estimate, OnError, estimated, unfit
from batchlimit.reservoir.tokens import ONE


class AsyncKeyCalls(BaseRateLimiter):
    """Decides calls at one key at a time: from memory here, else by the slow path. AsyncRateLimiter builds on it."""

    _registry: Registry
    acquire_all: Callable[..., Coroutine[Any, Any, None]]

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._entries = registry.entries
        self._clock = registry.clock
        self._slow_path = SlowPath(registry)

    def try_acquire(self, key: str, cost: int = 1) -> Answer[bool]:
        """Admit the call or not, now: usually from memory, else after a bounded round trip or two; never after a sleep.

        Args:
            key: what is limited, such as "search:ann".
            cost: whole tokens (default 1); 0 is always admitted.

        Returns:
            Whether the call may go ahead. False also while the store is away and `on_failure` is "closed".

        Raises:
            LimiterClosed, ValueError, TypeError: as the class says.

        Example:
            >>> from batchlimit import AsyncRateLimiter
            >>> limiter = AsyncRateLimiter.from_url("memory://", "2/hour")
            >>> [await limiter.try_acquire("ann") for _ in range(3)]
            [True, True, False]
        """
        # `FreeTokens.take` and `Admission.deny` flattened, as in the threaded API, but without a lock: no other task
        # comes between. That a thread may is why its number is looked at; the loop itself would take 240 ns to ask.
        registry = self._registry
        if registry.thread == get_ident() and cost.__class__ is int and cost > 0:
            try:
                entry = self._entries[key]
            except (KeyError, TypeError):
                return Pending(self._slow_path.try_acquire(key, cost))
            leased = entry.tokens
            if cost is ONE:
                for before in leased.lock_free:
                    if self._clock() < before:
                        return registry.yes
                    leased.took_late(cost)
                    break
                else:
                    if self._clock() < leased.denied_until:
                        leased.refused += 1
                        return registry.no
            reservoir, now = entry.reservoir, self._clock()
            if reservoir.state.is_short(now) and reservoir.admission.deny(cost, now):
                return registry.no
            if entry.take(cost) != NO_WAIT:
                return registry.yes
            return Pending(self._slow_path.try_at(entry, key, cost))
        return Pending(self._slow_path.try_acquire(key, cost))

    async def acquire(self, key: str, cost: int = 1, *, timeout: float | None = None) -> None:
        """Wait until the call is admitted. Callers are served in order of arrival.

        Args:
            key: what is limited.
            cost: whole tokens (default 1); 0 is always admitted.
            timeout: seconds to wait at most; 0 does not wait (default None: no limit).

        Raises:
            RateLimited: `timeout` cannot be met; raised as soon as that is known. `retry_after` says when to return.
            StoreUnavailable: the store is away and `on_failure` is "closed" for this key.
            LimiterClosed, ValueError, TypeError: as the class says.

        Example:
            >>> from batchlimit import AsyncRateLimiter
            >>> limiter = AsyncRateLimiter.from_url("memory://", "1/hour")
            >>> await limiter.acquire("ann")
            >>> await limiter.acquire("ann", timeout=0.5)
            Traceback (most recent call last):
            ...
            batchlimit.errors.RateLimited: 'ann' is over its quota; retry after 3...
        """
        await self._slow_path.acquire(key, cost, timeout)

    def decide(self, key: str, cost: int = 1) -> Answer[Decision]:
        """Admit the call or not, like try_acquire, and say what a caller wants to be told.

        Args:
            key: what is limited.
            cost: whole tokens (default 1); 0 is always admitted.

        Returns:
            A Decision, which is true if the call may go ahead.

        Raises:
            StoreUnavailable: the store is away and `on_failure` is "closed" for this key.
            LimiterClosed, ValueError, TypeError: as the class says.

        Example:
            >>> from batchlimit import AsyncRateLimiter
            >>> limiter = AsyncRateLimiter.from_url("memory://", "2/hour")
            >>> decision = await limiter.decide("ann")
            >>> decision.allowed, decision.limit, decision.remaining
            (True, 2, 1)
        """
        return Pending(self._slow_path.decide(key, cost))

    def peek(self, key: str) -> Answer[Decision]:
        """Say how the next call of cost 1 would fare. Nothing is charged.

        Args:
            key: what is limited.

        Returns:
            A Decision by what is in the bucket and in this process; it takes one round trip.

        Raises:
            StoreUnavailable: the store is away and `on_failure` is "closed" for this key.
            LimiterClosed, ValueError, TypeError: as the class says.

        Example:
            >>> from batchlimit import AsyncRateLimiter
            >>> limiter = AsyncRateLimiter.from_url("memory://", "2/hour")
            >>> (await limiter.peek("ann")).remaining
            2
        """
        return Pending(self._slow_path.peek(key))

    async def refund(self, key: str, cost: int = 1) -> None:
        """Take back a call that was admitted and did not happen.

        Refund what was admitted, once, and no more. The bucket takes back at most what makes it full.

        Args:
            key: what the call was charged to.
            cost: whole tokens (default 1), as at the call.

        Raises:
            LimiterClosed, ValueError, TypeError: as the class says.

        Example:
            >>> from batchlimit import AsyncRateLimiter
            >>> limiter = AsyncRateLimiter.from_url("memory://", "1/hour")
            >>> await limiter.acquire("ann")
            >>> await limiter.refund("ann")
            >>> await limiter.try_acquire("ann")
            True
        """
        await self._slow_path.refund(key, cost)

    async def pause(self, key: str, seconds: float, *, why: str = "") -> None:
        """Have nobody admitted at a key for a time, by any process: as where an upstream says "Retry-After".

        Of two pauses the one that ends later counts. Callers with enough timeout wait through it, in order of arrival;
        others are refused, and `retry_after` tells of its end. Then calls begin at the rate of the quota, not with a
        burst: of several bandwidths the one that fills fastest begins empty. Other processes hear of it with their next
        request: until then they spend what they have leased, for at most 1.5 s. A key in mode "shadow" or "open" admits
        all the same.

        Args:
            key: what is limited.
            seconds: until the pause ends, by the server's clock; above 0, and of more than ten years so many.
            why: the reason, which `batchlimit get` shows (one line, default "").

        Raises:
            StoreUnavailable: the store is away; this process pauses all the same, whatever `on_failure` says.
            LimiterClosed, ValueError, TypeError: as the class says; or the store cannot pause keys.

        Example:
            >>> from batchlimit import AsyncRateLimiter
            >>> limiter = AsyncRateLimiter.from_url("memory://", "100/s")
            >>> await limiter.pause("api.example.com", 30, why="429 of upstream")
            >>> decision = await limiter.decide("api.example.com")
            >>> decision.allowed, round(decision.retry_after)
            (False, 30)
        """
        await self._slow_path.pause(key, seconds, why)

    async def resume(self, key: str) -> bool:
        """End the pause of a key, for all processes; calls begin at the rate of the quota.

        Args:
            key: what is limited.

        Returns:
            Whether there was a pause.

        Raises:
            StoreUnavailable: the store is away.
            LimiterClosed, ValueError, TypeError: as the class says; or the store cannot pause keys.

        Example:
            >>> from batchlimit import AsyncRateLimiter
            >>> limiter = AsyncRateLimiter.from_url("memory://", "100/s")
            >>> await limiter.pause("api.example.com", 3600)
            >>> await limiter.resume("api.example.com")
            True
            >>> await limiter.acquire("api.example.com", timeout=1)
        """
        return await self._slow_path.resume(key)

    @overload
    def reserve(
        self, key: str, cost: int, *, timeout: float | None = None, on_error: OnError = "keep"
    ) -> AsyncReservation: ...
    @overload
    def reserve(
        self,
        key: Mapping[str, int] | Iterable[tuple[str, int]],
        *,
        timeout: float | None = None,
        on_error: OnError = "keep",
    ) -> AsyncJointReservation: ...
    def reserve(
        self,
        key: str | Mapping[str, int] | Iterable[tuple[str, int]],
        cost: int | None = None,
        *,
        timeout: float | None = None,
        on_error: OnError = "keep",
    ) -> AsyncReservation | AsyncJointReservation:
        """Charge an estimate now, as `acquire` does, and settle later what it really was.

        Args:
            key: what is limited; or the estimates of several keys, as a dict or as pairs: all are charged, or none.
            cost: the estimate, in whole tokens; none with several keys.
            timeout: seconds to wait at most; 0 does not wait (default None: no limit).
            on_error: what becomes of the estimate if the block raises or is cancelled: "keep" (default) or "refund".

        Returns:
            An AsyncReservation, or for several keys an AsyncJointReservation. The estimate is charged when it is
            awaited, or entered by `async with`.

        Raises:
            Unfit: an estimate is above the burst of its key.
            RateLimited: `timeout` cannot be met.
            StoreUnavailable: the store is away and `on_failure` is "closed" for this key.
            LimiterClosed, ValueError, TypeError: as the class says.

        Example:
            >>> from batchlimit import AsyncRateLimiter
            >>> limiter = AsyncRateLimiter.from_url("memory://", "20/hour")
            >>> async with limiter.reserve("ann", 5) as reservation:
            ...     await reservation.settle(2)
            >>> (await limiter.decide("ann", 0)).remaining
            18
        """
        estimate = Estimate(estimated(key, cost), on_error)
        made = AsyncJointReservation if cost is None else AsyncReservation
        return made(estimate, self._reserve(estimate.costs, timeout), self._slow_path.adjust)

    async def _reserve(self, costs: dict[str, int], timeout: float | None) -> None:
        """Charge all keys, or none."""
        entries = {key: self._registry.entry(key) for key in costs}  # what is settled for less stays there
        try:
            if len(costs) == 1:
                await self.acquire(*next(iter(costs.items())), timeout=timeout)
            else:
                await self.acquire_all(costs, timeout=timeout)
        except NeverFits as never:
            raise unfit(never, entries[never.key].reservoir.decisions, self._clock()) from None
