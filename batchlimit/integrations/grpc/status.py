"""What the status in which a call ended tells about the load."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import grpc

from batchlimit import BatchLimitError, ConcurrencyLimited
from batchlimit.concurrency import Outcome
from batchlimit.concurrency.classification import STATUSES
from batchlimit.errors import PermitLost

OutcomeOf = Callable[[grpc.StatusCode], Outcome]
"""Returns what a status tells about the load."""

_DROPPED = {grpc.StatusCode[name] for name in STATUSES}


def outcome_of(code: grpc.StatusCode) -> Outcome:
    """Return what a status tells about the load.

    Args:
        code: The status in which a call ended.

    Returns:
        `Outcome.SUCCESS` for OK. `Outcome.DROPPED` for UNAVAILABLE, DEADLINE_EXCEEDED and RESOURCE_EXHAUSTED: load made
        these calls fail. `Outcome.IGNORED` for all others: they are often faster than an answer, and the server would
        look faster the more calls fail.

    Example:
        >>> import grpc
        >>> from batchlimit.integrations.grpc import outcome_of
        >>> outcome_of(grpc.StatusCode.UNAVAILABLE)
        <Outcome.DROPPED: 'dropped'>
    """
    if code is grpc.StatusCode.OK:
        return Outcome.SUCCESS
    return Outcome.DROPPED if code in _DROPPED else Outcome.IGNORED


def status(code: object) -> grpc.StatusCode | None:
    """Return a status that was set, be it as a number; None if none was."""
    if isinstance(code, grpc.StatusCode):
        return code
    return next((known for known in grpc.StatusCode if known.value[0] == code), None)


PUSHBACK = "grpc-retry-pushback-ms"
"""gRPC's own key: a client whose channel retries comes back after so many ms, and not by its own backoff."""
REASON = "batchlimit-reason"
"""Why: `limit`, `partition`, `queue_full`, `queue_timeout`, `shed` or `unknown_partition`; see ConcurrencyLimited.

`lost`: the call was cancelled, because its shared permit may be another's by now.

Of rules: `quota`, `store` (it is away) or `identity` (nobody can say who asks)."""

Metadata = tuple[tuple[str, str | bytes], ...]


class Refusal(NamedTuple):
    """The status, the details and the trailing metadata of a call that was refused."""

    code: grpc.StatusCode
    details: str
    metadata: Metadata

    def end(self, context: Any) -> None:
        """End a call of a threaded server with this answer: `abort` of grpcio raises."""
        context.set_trailing_metadata(self.metadata)
        context.abort(self.code, self.details)

    async def end_async(self, context: Any) -> None:
        """End a call of a server on asyncio with this answer."""
        await context.abort(self.code, self.details, self.metadata)


def refusal(error: BatchLimitError) -> Refusal:
    """Return what to answer: RESOURCE_EXHAUSTED and when to come back, or UNAVAILABLE.

    It is UNAVAILABLE if the limiter is closed, its store is away, or a shared permit was lost. If nothing is known of
    when to come back, the answer says nothing: the client goes by its own backoff.
    """
    if isinstance(error, PermitLost):
        return Refusal(grpc.StatusCode.UNAVAILABLE, str(error), ((REASON, "lost"),))
    if not isinstance(error, ConcurrencyLimited):
        return Refusal(grpc.StatusCode.UNAVAILABLE, str(error), ())
    metadata: Metadata = ((REASON, error.reason),)
    if error.retry_after is not None:
        metadata += ((PUSHBACK, str(math.ceil(error.retry_after * 1000))),)
    return Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error), metadata)
