"""What calls say of themselves before they run: their partition, their key; and the permit under which one runs."""

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, Generic, TypeVar, Unpack

import grpc

from batchlimit.base.setting import functions, of_kind
from batchlimit.concurrency import Permit, Permits
from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.front import AsyncFront, Front, FrontOptions
from batchlimit.integrations.grpc.answer import OutcomeOf, outcome_of
from batchlimit.integrations.permits import AnyPermit, KeyOf, Limiter, PermitSource, asking
from batchlimit.integrations.source import RulesSource
from batchlimit.rules import Rule, Rules
from batchlimit.shared import SharedPermit

Name = Callable[[grpc.HandlerCallDetails], str]
"""Returns the name of a call's partition; it runs before every call, where nothing may block."""
Source = TypeVar("Source")
Asker = TypeVar("Asker")
HELD: ContextVar[AnyPermit | None] = ContextVar("batchlimit_permit", default=None)
"""Set before the handler of a call runs, in its thread or its task."""


def by_method(details: grpc.HandlerCallDetails) -> str:
    """Name the partition of a call by its method.

    Args:
        details: The method and the metadata of the call.

    Returns:
        The method in full: `/package.Service/Method`.

    Example:
        >>> from batchlimit import ConcurrencyLimiter, Partitions
        >>> from batchlimit.integrations.grpc import ConcurrencyInterceptor, by_method
        >>> with ConcurrencyLimiter(partitions=Partitions({"/shop.Orders/Pay": 0.5})) as limiter:
        ...     interceptor = ConcurrencyInterceptor(limiter, partition=by_method)
    """
    return details.method


def by_metadata(key: str) -> Name:
    """Return a function that names the partition of a call by its metadata.

    Args:
        key: The key whose first value is the name; a call without the key has no name.

    Returns:
        The function, for `partition` of an interceptor.

    Raises:
        ValueError: The values under this key are bytes: it ends in "-bin".

    Example:
        >>> from batchlimit import ConcurrencyLimiter, Partitions
        >>> from batchlimit.integrations.grpc import ConcurrencyInterceptor, by_metadata
        >>> with ConcurrencyLimiter(partitions=Partitions({"gold": 0.5})) as limiter:
        ...     interceptor = ConcurrencyInterceptor(limiter, partition=by_metadata("plan"))
    """
    if of_kind("key", key, str, "a str").lower().endswith("-bin"):
        raise ValueError(f"a partition is named by text, and the values under {key!r} are bytes")
    key = key.lower()  # as they all arrive

    def name(details: grpc.HandlerCallDetails) -> str:
        return next((str(value) for k, value in details.invocation_metadata or () if k == key), "")

    return name


class HoldsRules(Generic[Source, Asker]):
    """Holds rules against calls, by a front of either API."""

    _kind: Callable[..., Front | AsyncFront]

    def __init__(
        self,
        limiter: Source,
        rules: RulesSource,
        *,
        identify: Asker | None = None,
        messages: Rules | Iterable[Rule] = (),
        **options: Unpack[FrontOptions],
    ) -> None:
        super().__init__()
        self._front = self._kind(limiter, rules, identify=identify, messages=messages, **options)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._front.enforcer.rules}>"

    def statistics(self) -> EnforcementStatistics:
        """Return what became of the calls so far, by rule; the rules for messages count messages.

        Returns:
            The EnforcementStatistics of this process.
        """
        return self._front.statistics()


class Changed:
    """The context or the details of a call, some of which are others."""

    def __init__(self, of: Any, **changed: Any) -> None:
        self._of = of
        vars(self).update(changed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)


class AsksForPermits(Generic[Limiter]):
    """Lets calls go by their permits, each by what its details say."""

    _kinds: tuple[type, ...]

    def __init__(
        self,
        limiter: Limiter,
        *,
        partition: Name | None = None,
        key: KeyOf | None = None,
        outcome: OutcomeOf = outcome_of,
        sheddable: Callable[[grpc.HandlerCallDetails], bool] | None = None,
        priority: Callable[[Any], int] | None = None,
    ) -> None:
        super().__init__()
        functions(partition=partition, key=key, priority=priority, sheddable=sheddable, outcome=outcome)
        self._permits = PermitSource(self._kinds, limiter, partition, key)
        self._outcome = asking("outcome", outcome)
        if self._permits.is_shared and sheddable is not None:
            raise TypeError("sheddable= is for limiters of this process, and a shared one has none")
        given = {"priority": priority, "sheddable": sheddable}
        self._asked = [(name, asking(name, function)) for name, function in given.items() if function is not None]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._permits.limiter!r}>"

    def _options(self, details: Any) -> dict[str, Any]:
        """Return what a call asks of the limiter, whose own defaults hold for the rest."""
        return {"operation": details.method} | {name: function(details) for name, function in self._asked}


def current_permit() -> AnyPermit:
    """Return the permit of the call that this thread or task serves, for `check`, `lost` and `token` of a shared one.

    Returns:
        The permit.

    Raises:
        LookupError: no concurrency interceptor stands before the handler.

    Example:
        >>> try:
        ...     current_permit()
        ... except LookupError as error:
        ...     print(error)
        no concurrency interceptor stands before this handler: add one to the server
    """
    if (permit := HELD.get()) is None:
        raise LookupError("no concurrency interceptor stands before this handler: add one to the server")
    return permit


def check_permit() -> None:
    """Raise if the call that this thread serves was told to give up, or lost its permit; its handler is to call this.

    It is for handlers of sheddable calls and of shared limits behind a ConcurrencyInterceptor. That answers
    RESOURCE_EXHAUSTED, or UNAVAILABLE to a call that lost its permit. Elsewhere this does nothing. Streams need not
    call it: it is called before each request and each response of theirs.

    Raises:
        ConcurrencyLimited: The call was told to give up; the reason is "shed".
        PermitLost: The shared permit is lost.

    Example:
        >>> def Search(request, context):
        ...     for shard in range(100):
        ...         check_permit()
    """
    permit = HELD.get()
    if isinstance(permit, Permit | Permits | SharedPermit):
        permit.check()
