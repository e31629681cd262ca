"""The permits of web requests: what a response tells about the load, and the answer to a request that gets none."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, TypedDict, TypeVar

from batchlimit import BatchLimitError, ConcurrencyLimited
from batchlimit.concurrency import AsyncPermit, AsyncPermits, Outcome, Permit, Permits
from batchlimit.concurrency.classification import outcome_of_answer
from batchlimit.integrations.enforcement import NO_STORE, Refusal, Response
from batchlimit.integrations.faults import Faults
from batchlimit.integrations.headers import Fields
from batchlimit.integrations.operation import route_of
from batchlimit.integrations.permit_source import AnyLimiter, KeyOf, PermitSource
from batchlimit.integrations.problem import MEDIA_TYPE, reduced_capacity
from batchlimit.shared import AsyncSharedPermit, SharedPermit

T = TypeVar("T")
OutcomeOf = Callable[[Response], Outcome]
AnyPermit = Permit | Permits | AsyncPermit | AsyncPermits | SharedPermit | AsyncSharedPermit
_faults = Faults()
_fields = Fields("off")


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


_FAILED = {
    "bypass": "a request is limited, for `bypass` raised: %s",
    "partition": "a request has no partition, for `partition` failed: %s",
    "priority": "a request has the priority 0, for `priority` failed: %s",
    "operation": "a request is of no named operation, for `operation` failed: %s",
    "outcome": "the outcome of a request is ignored, for `outcome` failed: %s",
}


def _asked(name: str, function: Callable[[Any], Any], about: object, check: Callable[[Any], T], otherwise: T) -> T:
    """Return what a function of the user's says; or `otherwise`, and tell the log, if it raises or says nonsense."""
    try:
        return check(function(about))
    except Exception as error:  # noqa: BLE001  told in the log
        _faults.tell((name, function), _FAILED[name], error)
        return otherwise


def _whole(priority: object) -> int:
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise TypeError(f"a priority is a whole number, not {priority!r}")
    return priority


def _text(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a name is a str, not {name!r}")
    return name


def _nameless(request: object) -> str:
    return ""


def judge(permit: Permit | Permits | AsyncPermit | AsyncPermits, outcome: Outcome) -> None:
    """Complete a permit by what its request told about the load."""
    match outcome:
        case Outcome.SUCCESS:
            permit.success()
        case Outcome.DROPPED:
            permit.drop()
        case Outcome.IGNORED:
            permit.ignore()


class PermitOptions(TypedDict, total=False):
    """What a limit asks of a request, or of how it ended; `ConcurrencyLimit` says what each of these means."""

    partition: Callable[[Any], str] | None
    key: KeyOf | None
    timeout: float
    outcome: OutcomeOf
    priority: Callable[[Any], int] | None
    bypass: Callable[[Any], bool] | None
    operation: Callable[[Any], str]


class WebPermits:
    """What a middleware of either API asks about a request: whether it is limited, its permit, how it ended.

    If a function of the user's raises, the log tells, and the request is limited as without that function.
    """

    def __init__(
        self,
        kinds: tuple[type, ...],
        limiter: AnyLimiter,
        *,
        partition: Callable[[Any], str] | None = None,
        key: KeyOf | None = None,
        timeout: float = 0.0,
        outcome: OutcomeOf = outcome_of,
        priority: Callable[[Any], int] | None = None,
        bypass: Callable[[Any], bool] | None = None,
        operation: Callable[[Any], str] = route_of,
    ) -> None:
        named = _nameless if partition is None else partial(_asked, "partition", partition, check=_text, otherwise="")
        self._source = PermitSource(kinds, limiter, named, key)
        self._timeout, self._outcome, self._priority, self._bypass = timeout, outcome, priority, bypass
        self._operation = operation
        self.is_shared = self._source.is_shared

    def __repr__(self) -> str:
        return repr(self._source)

    def passes_by(self, request: object) -> bool:
        """Return whether a request is not limited."""
        return self._bypass is not None and _asked("bypass", self._bypass, request, bool, False)

    def acquire(self, request: object) -> Any:
        """Return the permit of a request; that of an asyncio limiter is to be awaited."""
        priority = 0 if self._priority is None else _asked("priority", self._priority, request, _whole, 0)
        return self._source.acquire(request, timeout=self._timeout, priority=priority)

    def complete(self, permit: AnyPermit, request: object, response: Response) -> None:
        """Complete the permit of a request by its response; it is ignored if `outcome` raises or returns no Outcome."""
        if isinstance(permit, SharedPermit | AsyncSharedPermit):
            permit.release()
        else:
            permit.operation = _asked("operation", self._operation, request, _text, "")
            judge(permit, _asked("outcome", self._outcome, response, Outcome, Outcome.IGNORED))


def refusal_of(error: BatchLimitError) -> Refusal:
    """Return the answer to a request that got no permit: 503, with the reason and when to come back."""
    reason, wait = (error.reason, error.retry_after) if isinstance(error, ConcurrencyLimited) else ("", None)
    headers = [(b"content-type", MEDIA_TYPE), NO_STORE, *_fields.retry_after(wait)]
    return Refusal(503, (), None, wait, headers, _body(reason), error)


@lru_cache  # one for each reason: there are eight
def _body(reason: str) -> bytes:
    return reduced_capacity(detail=reason).body()
