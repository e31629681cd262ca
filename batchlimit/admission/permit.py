"""How one call gets its tokens and its permit, in both APIs; and permits of all concurrency limiters alike."""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from batchlimit.base.key import MOST_URGENT, Costs, check_costs
from batchlimit.base.redaction import shown
from batchlimit.base.setting import of_kind
from batchlimit.base.steps import Steps
from batchlimit.base.waiting import deadline, patience
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, KeyedConcurrencyLimiter, Outcome
from batchlimit.concurrency.async_limiter import AsyncConcurrencyLimiter
from batchlimit.concurrency.limiter import ConcurrencyLimiter
from batchlimit.concurrency.permit import HELD, BasePermit
from batchlimit.errors import BatchLimitError, ConcurrencyLimited, RateLimited
from batchlimit.keyspace.reservation import not_refunded
from batchlimit.shared import AsyncSharedConcurrencyLimiter, SharedConcurrencyLimiter
from batchlimit.shared.permit import BaseSharedPermit

THREADED = (ConcurrencyLimiter, KeyedConcurrencyLimiter, SharedConcurrencyLimiter)
ASYNC = (AsyncConcurrencyLimiter, AsyncKeyedConcurrencyLimiter, AsyncSharedConcurrencyLimiter)
KEYED = (KeyedConcurrencyLimiter, AsyncKeyedConcurrencyLimiter)
LimiterByKey = (
    KeyedConcurrencyLimiter | AsyncKeyedConcurrencyLimiter | SharedConcurrencyLimiter | AsyncSharedConcurrencyLimiter
)

Names = str | Iterable[str]
"""A key, several keys, or a partition: what the limiter of a permit has."""
Rate = str | Costs
"""A key, which is charged `cost`; or whole tokens by key."""


def give_back(permit: Any, outcome: Outcome = Outcome.IGNORED) -> None:
    """Complete a permit by what its call told about the load, if one was made; a second time it changes nothing."""
    if isinstance(permit, BaseSharedPermit):
        permit.release()
    elif outcome is Outcome.SUCCESS:
        permit.success()
    elif outcome is Outcome.DROPPED:
        permit.drop()
    else:
        permit.ignore()


def check_kind(name: str, limiter: object, kinds: tuple[type, ...]) -> None:
    """Raise TypeError unless an argument is one of these limiters, which are of one API."""
    of_kind(name, limiter, kinds, f"one of {', '.join(kind.__name__ for kind in kinds)}")


_NO_ROOM = ("limit", "partition")
"""Reasons of a concurrency limiter for which there may be room later."""


class BaseAdmission:
    """The steps by which one call gets its tokens and its permit, in both APIs."""

    def __init__(self, rates: Any, concurrency: Any) -> None:
        self._rates, self._concurrency = rates, concurrency

    def __repr__(self) -> str:
        return f"<{type(self).__name__} by {self._rates!r} and {self._concurrency!r}>"

    def _begin(
        self, rate: Rate, names: Names, cost: int, timeout: float | None, options: dict[str, Any]
    ) -> Callable[[], Steps[Any]]:
        """Check what a call asks for; return what begins the steps to its permit, each time anew."""
        limiter, acquire = self._concurrency, self._concurrency.acquire
        if not isinstance(names, str):
            if not isinstance(limiter, KEYED):
                raise TypeError(
                    f"a {type(limiter).__name__} takes one key or partition for each call, not {shown(names)}"
                )
            names, acquire = list(names), limiter.acquire_all
        patience(timeout)
        costs, priority = check_costs({rate: cost} if isinstance(rate, str) else rate), options.get("priority", 1)
        # Among those that wait for tokens it is from 1 to 100.
        priority = min(max(priority, 1), MOST_URGENT) if isinstance(priority, int) else 1
        return partial(self._attempt, costs, partial(acquire, names, **options), timeout, priority)

    def _attempt(
        self, costs: Mapping[str, int], acquire: Callable[..., Any], timeout: float | None, priority: int
    ) -> Steps[Any]:
        """Lead to the permit, with the tokens charged; or raise why there is none.

        A call holds one of the two while it waits for no other. Before any queue it looks at both, so a caller that is
        over its rate is refused without a place in a queue. It charges tokens that are there only where it holds a
        permit: others would be refused for them, and nobody would use them.
        """
        rates, clock = self._rates, self._rates._clock
        until = deadline(timeout, clock())

        def may_wait(refusal: ConcurrencyLimited) -> bool:
            return refusal.reason in _NO_ROOM and clock() < until

        def left() -> float | None:
            return None if until == math.inf else max(0.0, until - clock())

        permit = None
        try:
            permit = yield acquire(timeout=0)
        except ConcurrencyLimited as refusal:
            if not may_wait(refusal):
                raise
        while True:
            if permit is None and (yield from self._seem_there(costs)):
                permit = yield acquire(timeout=left())
            if permit is not None and (yield from self._charged(costs, permit, until)):
                break
            yield rates.acquire_all(costs, timeout=left(), priority=priority)
            try:
                permit = yield acquire(timeout=0)
            except BaseException as error:
                back = self._refund(costs)  # whatever happens meanwhile
                if not isinstance(error, ConcurrencyLimited) or not may_wait(error):
                    raise
            else:
                break
            yield back
            permit = yield acquire(timeout=left())
        for each in getattr(permit, "_permits", (permit,)):
            if isinstance(each, BasePermit) and each._state is HELD:
                each.start_ns = each._locked_gate.clock()  # a law is not told how long this call waited for tokens
        return permit

    def _seem_there(self, costs: Mapping[str, int]) -> Steps[bool]:
        """Whether there are tokens for all keys, in memory or at the store; nothing is charged."""
        rates, now = self._rates, self._rates._clock()
        for key, cost in costs.items():
            entry = rates._entries.get(key)
            if (entry is None or not entry.tokens.has(cost, now)) and (yield rates.peek(key)).remaining < cost:
                return False
        return True

    def _charged(self, costs: Mapping[str, int], permit: Any, until: float) -> Steps[bool]:
        """Charge the tokens at once, holding a permit; if they are not there, it goes back, and there is time."""
        try:
            if self._rates.take_leased(costs) is not None:  # a hit by `decide_all` takes longer
                return True
            decisions = yield self._rates.decide_all(costs)
            short = next(((key, each) for key, each in decisions.items() if not each), None)
            if short is not None and until < self._rates._clock() + short[1].retry_after:
                raise RateLimited(short[0], short[1].retry_after, short[1])
        except BaseException:
            give_back(permit)
            raise
        if short is not None:
            give_back(permit)
        return short is None

    def _refund(self, costs: Mapping[str, int]) -> Any:
        """Go through `_refunding`, whatever happens meanwhile; on asyncio the end is to be awaited."""
        raise NotImplementedError

    def _refunding(self, costs: Mapping[str, int]) -> Steps[None]:
        """Give tokens back; this never raises."""
        for key, tokens in costs.items():
            try:
                yield self._rates.refund(key, tokens)
            except BatchLimitError as error:  # the caller has its answer already
                not_refunded(key, tokens, error)
