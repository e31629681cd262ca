"""The permits of web requests: what limits them, what a response tells of the load, and the answer to who gets none."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Generic, TypedDict, TypeVar, Unpack

from batchlimit import AsyncConcurrencyLimiter, BatchLimitError, ConcurrencyLimited, ConcurrencyLimiter
from batchlimit.admission.permit import LimiterByKey, check_kind, give_back
from batchlimit.base.setting import functions, of_kind, whole
from batchlimit.base.waiting import patience
from batchlimit.concurrency import (
    AsyncKeyedConcurrencyLimiter,
    AsyncPermit,
    AsyncPermits,
    KeyedConcurrencyLimiter,
    Outcome,
    Permit,
    Permits,
)
from batchlimit.concurrency.classification import outcome_of_answer
from batchlimit.events import log_event
from batchlimit.integrations.carried import route_of
from batchlimit.integrations.counters import Faults
from batchlimit.integrations.enforcement import NO_STORE, Refusal, Response
from batchlimit.integrations.headers import MEDIA_TYPE, Fields, reduced_capacity
from batchlimit.shared import AsyncSharedConcurrencyLimiter, AsyncSharedPermit, SharedConcurrencyLimiter, SharedPermit

T = TypeVar("T")
Keyed = KeyedConcurrencyLimiter | AsyncKeyedConcurrencyLimiter
Shared = SharedConcurrencyLimiter | AsyncSharedConcurrencyLimiter
AnyLimiter = ConcurrencyLimiter | AsyncConcurrencyLimiter | LimiterByKey
KeyOf = Callable[[Any], str | Iterable[str]]
"""Returns the key of a request, or several keys, of which it needs a place at each."""
OutcomeOf = Callable[[Response], Outcome]
AnyPermit = Permit | Permits | AsyncPermit | AsyncPermits | SharedPermit | AsyncSharedPermit
_faults = Faults()
_fields = Fields("off")
Limiter = TypeVar("Limiter", bound=AnyLimiter)
_whole = partial(whole, "priority", least=-math.inf, most=math.inf)
_text = partial(of_kind, "its name", kind=str, what="a str")
_body = lru_cache(lambda reason: reduced_capacity(detail=reason).body())  # one for each reason: there are eight


def outcome_of(response: Response) -> Outcome:
    """Return what a response tells about the load.

    Args:
        response: how the request ended.

    Returns:
        `Outcome.DROPPED` for 429, 503 and 504: load made these fail. `Outcome.IGNORED` for all other 5xx and where the
        client went away: they are often faster than an answer. `Outcome.SUCCESS` for the rest.

    Example:
        >>> outcome_of(Response(503))
        <Outcome.DROPPED: 'dropped'>
    """
    outcome = outcome_of_answer(response.status)
    return outcome if outcome is Outcome.DROPPED or response.complete else Outcome.IGNORED


_ASKED: dict[str, tuple[Callable[[Any], Any], Any, str]] = {
    "bypass": (bool, False, "a request is limited, for `bypass` raised: %s"),
    "partition": (_text, "", "a request has no partition, for `partition` failed: %s"),
    "priority": (_whole, 0, "a request has the priority 0, for `priority` failed: %s"),
    "operation": (_text, "", "a request is of no named operation, for `operation` failed: %s"),
    "outcome": (Outcome, Outcome.IGNORED, "the outcome of a request is ignored, for `outcome` failed: %s"),
    "sheddable": (bool, False, "a request is not shed, for `sheddable` failed: %s"),
}
"""What a function of the user's returns, and what holds where it does not."""


def asking(name: str, function: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """Return what asks a function of the user's, if there is one, and tells the log if that raises or says nonsense."""
    check, otherwise, failed = _ASKED[name]

    def ask(about: object) -> Any:
        try:
            return check(function(about))  # type: ignore[misc]
        except Exception as error:  # noqa: BLE001  told in the log
            _faults.tell((name, function), failed, error)
            return otherwise

    return ask if function is not None else lambda _: otherwise


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

    def __post_init__(self) -> None:
        functions(**{name: given for name, given in vars(self).items() if name not in ("limiter", "timeout")})
        patience(self.timeout)


class PermitOptions(TypedDict, total=False):
    """What a limit asks of a request, or of how it ended; `ConcurrencyLimit` says what each of these means."""

    partition: Callable[[Any], str] | None
    key: KeyOf | None
    timeout: float
    outcome: OutcomeOf
    priority: Callable[[Any], int] | None
    bypass: Callable[[Any], bool] | None
    operation: Callable[[Any], str]


class PermitSource:
    """Acquires permits, for faces of both APIs; without a key it refuses. TypeError: options do not fit the limiter."""

    def __init__(
        self, kinds: tuple[type, ...], limiter: AnyLimiter, partition: Callable[[Any], str] | None, key: KeyOf | None
    ) -> None:
        check_kind("limiter", limiter, kinds)
        has_keys, self.is_shared = isinstance(limiter, LimiterByKey), isinstance(limiter, Shared)
        if has_keys and key is None:
            raise TypeError(f"a {type(limiter).__name__} needs key=, a function that returns the key of a request")
        if key is not None and not has_keys:
            raise TypeError(f"key= is for a limiter by key, like KeyedConcurrencyLimiter, not {limiter!r}")
        self.limiter, self._key = limiter, key
        self._partition = asking("partition", partition)

    def acquire(self, request: object, *, back: tuple[Any, Any] | None = None, **options: Any) -> Any:
        """Return the permit of a request; that of an asyncio limiter is to be awaited.

        With `back` a request may wait without a thread: of None one of the two is called, with a permit or a refusal.
        """
        limiter: Any = self.limiter
        acquire = limiter.acquire if back is None else partial(limiter.acquire_later, *back)
        if self._key is None:
            return acquire(self._partition(request), **options)
        if self.is_shared:
            options.pop("operation", None)
        else:
            options["partition"] = self._partition(request)
        try:
            keys = self._key(request)
            if isinstance(keys, str):
                return acquire(keys, **options)
            if not isinstance(limiter, Keyed):
                raise TypeError("a request has one key at a shared limiter: return a str")
            return limiter.acquire_all(keys, **(options if back is None else options | {"timeout": 0}))
        except BatchLimitError:
            raise
        except Exception as error:
            message = "a request is refused, for its key could not be made: %s"
            log_event("web.no_permit_key", message, error, error=error)
            why = "the key could not be made"
            raise ConcurrencyLimited("no_key", None, limit=0, in_flight=0, detail=why) from error


class WebPermits(PermitSource):
    """What middlewares of both APIs ask of a request. A function of the user's that raises is told and left out."""

    def __init__(self, kinds: tuple[type, ...], limits: ConcurrencyLimit) -> None:
        super().__init__(kinds, limits.limiter, limits.partition, limits.key)
        self._timeout, self._operation = limits.timeout, asking("operation", limits.operation)
        self._priority, self._outcome = asking("priority", limits.priority), asking("outcome", limits.outcome)
        self.passes_by = asking("bypass", limits.bypass)  # says whether a request is not limited

    def acquire(self, request: object, **_: Any) -> Any:
        """Return the permit of a request; that of an asyncio limiter is to be awaited."""
        return super().acquire(request, timeout=self._timeout, priority=self._priority(request))

    def complete(self, permit: AnyPermit, request: object, response: Response) -> None:
        """Complete the permit of a request by its response; it is ignored if `outcome` raises or returns no Outcome."""
        if isinstance(permit, SharedPermit | AsyncSharedPermit):
            permit.release()
        else:
            permit.operation = self._operation(request)
            give_back(permit, self._outcome(response))


def refusal_of(error: BatchLimitError) -> Refusal:
    """Return the answer to a request that got no permit: 503, with the reason and when to come back."""
    reason, wait = (error.reason, error.retry_after) if isinstance(error, ConcurrencyLimited) else ("", None)
    headers = [(b"content-type", MEDIA_TYPE), NO_STORE, *_fields.retry_after(wait)]
    return Refusal(503, (), None, wait, headers, _body(reason), error)


class PermitMiddleware(Generic[Limiter]):
    """What the middlewares of both APIs take, in whose classes it is described."""

    _kinds: tuple[type, ...]

    def __init__(self, app: Callable[..., Any], limiter: Limiter, **options: Unpack[PermitOptions]) -> None:
        self.app = app
        self._permits = WebPermits(self._kinds, ConcurrencyLimit(limiter=limiter, **options))

    def __repr__(self) -> str:
        return f"<ConcurrencyLimitMiddleware by {self._permits.limiter!r}>"
