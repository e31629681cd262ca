"""What both APIs make of their arguments: costs, and permits of all concurrency limiters alike."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from batchlimit.base.redaction import shown
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, KeyedConcurrencyLimiter
from batchlimit.concurrency.async_limiter import AsyncConcurrencyLimiter
from batchlimit.concurrency.limiter import ConcurrencyLimiter
from batchlimit.concurrency.permit import HELD, BasePermit
from batchlimit.events import log_event, named
from batchlimit.quota.key import MOST_URGENT, check_costs
from batchlimit.shared import AsyncSharedConcurrencyLimiter, SharedConcurrencyLimiter
from batchlimit.shared.permit import BaseSharedPermit

THREADED = (ConcurrencyLimiter, KeyedConcurrencyLimiter, SharedConcurrencyLimiter)
ASYNC = (AsyncConcurrencyLimiter, AsyncKeyedConcurrencyLimiter, AsyncSharedConcurrencyLimiter)
KEYED = (KeyedConcurrencyLimiter, AsyncKeyedConcurrencyLimiter)

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


def give_back(permit: Any) -> None:
    """Complete a permit with which no call was made; a second time it changes nothing."""
    if isinstance(permit, BaseSharedPermit):
        permit.release()
    else:
        permit.ignore()


def started_now(permit: Any) -> None:
    """Let the call begin now: a law is not told how long it waited for tokens."""
    for each in getattr(permit, "_permits", (permit,)):
        if isinstance(each, BasePermit) and each._state is HELD:
            each.start_ns = each._locked_gate.clock()


Rate = str | Mapping[str, int] | Iterable[tuple[str, int]]
"""A key, which is charged `cost`; or whole tokens by key."""


def checked_pair(rates: object, concurrency: object, rate_kind: type, kinds: tuple[type, ...]) -> None:
    """Raise TypeError unless these are a rate limiter and a concurrency limiter of the same API."""
    if not isinstance(rates, rate_kind):
        raise TypeError(f"rates must be of {rate_kind.__name__}, not {shown(rates)}")
    check_kind("concurrency", concurrency, kinds)


def check_kind(name: str, limiter: object, kinds: tuple[type, ...]) -> None:
    """Raise TypeError unless an argument is one of these limiters, which are of one API."""
    if not isinstance(limiter, kinds):
        names = ", ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} must be one of {names}, not {shown(limiter)}")


def costs_of(rate: Rate, cost: int) -> dict[str, int]:
    """Return whole tokens by key."""
    return check_costs({rate: cost} if isinstance(rate, str) else rate)


def not_refunded(key: str, tokens: int, error: Exception) -> None:
    """Tell the log of tokens that could not be given back: the caller has an answer already."""
    message = "%d tokens of %s were not refunded: %s"
    log_event("tokens.not_refunded", message, tokens, named(key), error, key=key, tokens=tokens, reason=str(error))
