"""Events on spans of OpenTelemetry, for calls that wait or are refused: one line for each limiter that wants them."""

import functools
from collections.abc import Callable
from inspect import iscoroutinefunction
from time import perf_counter
from typing import Any

from batchlimit.base.lazy import needed

with needed(__name__, "otel", "opentelemetry-api", name="opentelemetry"):
    from opentelemetry.trace import get_current_span

from batchlimit import BatchLimitError
from batchlimit.base.steps import Steps, ahead, drive

__all__ = ["trace"]

_METHODS = "acquire", "acquire_all", "try_acquire"


def trace(limiter: Any, *, name: str = "", longer_than: float = 0.001) -> None:
    """Have calls of a rate limiter that wait or are refused add an event to the span that is current.

    Other calls add none. `acquire`, `acquire_all` and `try_acquire` of this limiter are wrapped, so a hit takes longer,
    by 1 to 2 us; limiters that nobody traces pay nothing. Calls of bucket handles, decorators and web fronts
    are not traced. No event has a key.

    The events are `batchlimit.waited`, with the attribute `batchlimit.seconds`, and `batchlimit.refused`, with
    `batchlimit.error` (the class of the error, "" where a call returned False) and `batchlimit.retry_after` (seconds)
    if that is known. Both have `batchlimit.limiter`.

    Args:
        limiter: a RateLimiter or an AsyncRateLimiter.
        name: the value of `batchlimit.limiter` (default "").
        longer_than: seconds; a call that took no longer has not waited (default 0.001).

    Raises:
        TypeError: it is no rate limiter.

    Example:
        >>> from opentelemetry.sdk.trace import TracerProvider
        >>> from batchlimit import RateLimiter
        >>> limiter = RateLimiter.from_url("memory://", "1/hour")
        >>> trace(limiter, name="api")
        >>> with TracerProvider().get_tracer("app").start_as_current_span("search") as span:
        ...     [limiter.try_acquire("ann") for _ in range(2)]
        [True, False]
        >>> [(event.name, event.attributes["batchlimit.limiter"]) for event in span.events]
        [('batchlimit.refused', 'api')]
    """
    if not all(callable(getattr(limiter, method, None)) for method in _METHODS):
        raise TypeError(f"{limiter!r} cannot be traced: give a RateLimiter or an AsyncRateLimiter")
    for method in _METHODS:
        setattr(limiter, method, _traced(getattr(limiter, method), {"batchlimit.limiter": name}, longer_than))


def _traced(call: Callable[..., Any], labels: dict[str, str], longer_than: float) -> Callable[..., Any]:
    """Return the same call, which adds to the current span what became of it."""

    def steps(*args: Any, **options: Any) -> Steps[Any]:
        began = perf_counter()
        try:
            result = yield call(*args, **options)
        except BatchLimitError as error:
            told: dict[str, str | float] = {**labels, "batchlimit.error": type(error).__name__}
            if (retry_after := getattr(error, "retry_after", None)) is not None:
                told["batchlimit.retry_after"] = retry_after
            get_current_span().add_event("batchlimit.refused", told)
            raise
        if result is False:
            get_current_span().add_event("batchlimit.refused", labels | {"batchlimit.error": ""})
        elif (seconds := perf_counter() - began) > longer_than:
            get_current_span().add_event("batchlimit.waited", {**labels, "batchlimit.seconds": seconds})
        return result

    async def traced_coroutine(*args: Any, **options: Any) -> Any:
        return await drive(steps(*args, **options))

    def traced(*args: Any, **options: Any) -> Any:
        return ahead(steps(*args, **options))

    return functools.wraps(call)(traced_coroutine if iscoroutinefunction(call) else traced)
