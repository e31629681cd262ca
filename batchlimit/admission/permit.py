"""How one call gets its tokens and its permit, in both APIs; and permits of all concurrency limiters alike."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from batchlimit.base.redaction import shown
from batchlimit.base.setting import of_kind
from batchlimit.base.steps import Steps
from batchlimit.base.waiting import deadline
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, KeyedConcurrencyLimiter, Outcome
from batchlimit.concurrency.async_limiter import AsyncConcurrencyLimiter
from batchlimit.concurrency.limiter import ConcurrencyLimiter
from batchlimit.concurrency.permit import HELD, BasePermit
from batchlimit.errors import BatchLimitError, ConcurrencyLimited, RateLimited
from batchlimit.keyspace.reservation import not_refunded
from batchlimit.quota.key import MOST_URGENT, Costs, check_costs
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


def acquirer(limiter: Any, names: Names, options: dict[str, Any]) -> Callable[[float | None], Any]:
    """Return what asks a concurrency limiter of either API for a permit, with a timeout."""
    if isinstance(names, str):
        return lambda timeout: limiter.acquire(names, timeout=timeout, **options)
    if not isinstance(limiter, KEYED):
        raise TypeError(f"a {type(limiter).__name__} takes one key or partition for each call, not {shown(names)}")
    several = list(names)
    return lambda timeout: limiter.acquire_all(several, timeout=timeout, **options)


def rank_of(options: Mapping[str, Any]) -> int:
    """Return the priority of a call among those that wait for tokens: what its options say, from 1 to 100."""
    priority = options.get("priority", 1)
    return min(max(priority, 1), MOST_URGENT) if isinstance(priority, int) else 1


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


Rate = str | Costs
"""A key, which is charged `cost`; or whole tokens by key."""


def check_kind(name: str, limiter: object, kinds: tuple[type, ...]) -> None:
    """Raise TypeError unless an argument is one of these limiters, which are of one API."""
    of_kind(name, limiter, kinds, f"one of {', '.join(kind.__name__ for kind in kinds)}")


def costs_of(rate: Rate, cost: int) -> dict[str, int]:
    """Return whole tokens by key."""
    return check_costs({rate: cost} if isinstance(rate, str) else rate)


_NO_ROOM = ("limit", "partition")
"""Reasons of a concurrency limiter for which there may be room later."""


def attempt(
    rates: Any,
    costs: Mapping[str, int],
    acquire: Callable[[float | None], Any],
    refund: Callable[[Mapping[str, int]], Any],
    timeout: float | None,
    priority: int,
) -> Steps[Any]:
    """Return the steps that lead to the permit, with the tokens charged; they raise why there is none.

    A call holds one of the two while it waits for no other. Before any queue it looks at both, so a caller that is over
    its rate is refused without a place in a queue. It charges tokens that are there only where it holds a permit:
    others would be refused for them, and nobody would use them. `refund` gives tokens back, whatever happens meanwhile.
    """
    clock: Callable[[], float] = rates._clock
    until = deadline(timeout, clock())

    def may_wait(refusal: ConcurrencyLimited) -> bool:
        return refusal.reason in _NO_ROOM and clock() < until

    def left() -> float | None:
        return None if until == math.inf else max(0.0, until - clock())

    permit = None
    try:
        permit = yield acquire(0)
    except ConcurrencyLimited as refusal:
        if not may_wait(refusal):
            raise
    while True:
        if permit is None and (yield from _seem_there(rates, costs)):
            permit = yield acquire(left())
        if permit is not None and (yield from _charged(rates, costs, permit, until)):
            break
        yield rates.acquire_all(costs, timeout=left(), priority=priority)
        try:
            permit = yield acquire(0)
        except BaseException as error:
            back = refund(costs)
            if not isinstance(error, ConcurrencyLimited) or not may_wait(error):
                raise
        else:
            break
        yield back
        permit = yield acquire(left())
    for each in getattr(permit, "_permits", (permit,)):
        if isinstance(each, BasePermit) and each._state is HELD:
            each.start_ns = each._locked_gate.clock()  # a law is not told how long this call waited for tokens
    return permit


def _seem_there(rates: Any, costs: Mapping[str, int]) -> Steps[bool]:
    """Whether there are tokens for all keys, in memory or at the store; nothing is charged."""
    now = rates._clock()
    for key, cost in costs.items():
        entry = rates._entries.get(key)
        if (entry is None or not entry.tokens.has(cost, now)) and (yield rates.peek(key)).remaining < cost:
            return False
    return True


def _charged(rates: Any, costs: Mapping[str, int], permit: Any, until: float) -> Steps[bool]:
    """Charge the tokens at once, holding a permit; if they are not there, it goes back, and there is time."""
    try:
        if rates.take_leased(costs) is not None:  # a hit by `decide_all` takes longer
            return True
        decisions = yield rates.decide_all(costs)
        short = next(((key, each) for key, each in decisions.items() if not each), None)
        if short is not None and until < rates._clock() + short[1].retry_after:
            raise RateLimited(short[0], short[1].retry_after, short[1])
    except BaseException:
        give_back(permit)
        raise
    if short is not None:
        give_back(permit)
    return short is None


def refunds(rates: Any, costs: Mapping[str, int]) -> Steps[None]:
    """Return the steps that give tokens back; they never raise."""
    for key, tokens in costs.items():
        try:
            yield rates.refund(key, tokens)
        except BatchLimitError as error:  # the caller has its answer already
            not_refunded(key, tokens, error)
