"""ConcurrencyLimit: what a middleware that holds rules needs to limit how many requests are under way, too."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from batchlimit.integrations.operation import route_of
from batchlimit.integrations.permit_source import AnyLimiter, KeyOf
from batchlimit.integrations.permits import OutcomeOf, outcome_of


@dataclass(frozen=True, kw_only=True)
class ConcurrencyLimit:
    """A concurrency limit beside rules: a request needs a permit and tokens, and gets both or none.

    Attributes:
        limiter: the concurrency limiter, of the API of the middleware: by key, shared by key, or one limit for all. Its
            owner closes it.
        partition: returns the partition of a request, for a limiter without keys (default None: none).
        key: returns the key of a request, for a limiter by key, or several keys for a keyed one (default None). A
            request is refused if it raises.
        timeout: how long a request waits for its permit, where the limiter has a queue (seconds, default 0).
        outcome: returns what a Response tells about the load (default `outcome_of`).
        priority: returns the priority of a request, a whole number: high ones are served first in the limiter's queue
            (default None: 0 for all).
        bypass: requests of which it returns True need no permit (default None: all do).
        operation: returns what kind of request it is, for laws that hold unlike kinds apart. It is called when the
            response has ended (default `route_of`: the method and the route's template).

    Example:
        >>> from batchlimit import AsyncConcurrencyLimiter
        >>> from batchlimit.integrations.asgi import RateLimitMiddleware
        >>> from batchlimit.rules import Rule
        >>> async def app(scope, receive, send): ...
        >>> backend = ConcurrencyLimit(limiter=AsyncConcurrencyLimiter(), timeout=0.5)
        >>> limited = RateLimitMiddleware(app, "memory://", [Rule("all", "10/s", key="all")], concurrency=backend)
    """

    limiter: AnyLimiter
    partition: Callable[[Any], str] | None = None
    key: KeyOf | None = None
    timeout: float = 0.0
    outcome: OutcomeOf = outcome_of
    priority: Callable[[Any], int] | None = None
    bypass: Callable[[Any], bool] | None = None
    operation: Callable[[Any], str] = route_of


def options_of(concurrency: ConcurrencyLimit) -> dict[str, Any]:
    """Return what a ConcurrencyLimitMiddleware takes beside its application."""
    if not isinstance(concurrency, ConcurrencyLimit):
        raise TypeError(f"concurrency is like ConcurrencyLimit(limiter=...), not {concurrency!r}")
    return {each.name: getattr(concurrency, each.name) for each in fields(concurrency)}
