"""Permits of all concurrency limiters alike: asked for, given back, begun."""

from collections.abc import Callable, Iterable
from typing import Any

from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, KeyedConcurrencyLimiter
from batchlimit.concurrency.async_limiter import AsyncConcurrencyLimiter
from batchlimit.concurrency.base_permit import HELD, BasePermit
from batchlimit.concurrency.limiter import ConcurrencyLimiter
from batchlimit.redaction import shown
from batchlimit.shared import AsyncSharedConcurrencyLimiter, SharedConcurrencyLimiter
from batchlimit.shared.permit import BaseSharedPermit

THREADED = (ConcurrencyLimiter, KeyedConcurrencyLimiter, SharedConcurrencyLimiter)
ASYNC = (AsyncConcurrencyLimiter, AsyncKeyedConcurrencyLimiter, AsyncSharedConcurrencyLimiter)
KEYED = (KeyedConcurrencyLimiter, AsyncKeyedConcurrencyLimiter)

Names = str | Iterable[str]
"""A key, several keys, or a partition: what the limiter of a permit has."""


def acquirer(limiter: Any, names: Names, options: dict[str, Any]) -> Callable[[float | None], Any]:
    """Return what asks a concurrency limiter for a permit, with a timeout.

    Args:
        limiter: of either API.
        names: a key, several keys of a keyed limiter, or a partition.
        options: as its `acquire` takes them.

    Raises:
        TypeError: several keys for a limiter that has one for each call.
    """
    if isinstance(names, str):
        return lambda timeout: limiter.acquire(names, timeout=timeout, **options)
    if not isinstance(limiter, KEYED):
        raise TypeError(f"a {type(limiter).__name__} takes one key or partition for each call, not {shown(names)}")
    several = list(names)
    return lambda timeout: limiter.acquire_all(several, timeout=timeout, **options)


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
            each.start_ns = each._locked_gate.clock()  # type: ignore[attr-defined]
