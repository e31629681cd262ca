"""How a client is told that its call was refused."""

import math
from typing import NamedTuple

import grpc

from batchlimit import BatchLimitError, ConcurrencyLimited

PUSHBACK = "grpc-retry-pushback-ms"
"""gRPC's own key: a client whose channel retries comes back after so many ms, and not by its own backoff."""
REASON = "batchlimit-reason"
"""Why: `limit`, `partition`, `queue_full`, `queue_timeout`, `shed` or `unknown_partition`; see ConcurrencyLimited."""

Metadata = tuple[tuple[str, str], ...]


class Refusal(NamedTuple):
    """The status, the details and the trailing metadata of a call that was refused."""

    code: grpc.StatusCode
    details: str
    metadata: Metadata


def refusal(error: BatchLimitError) -> Refusal:
    """Return what to answer: RESOURCE_EXHAUSTED and when to come back, or UNAVAILABLE by a limiter that is closed.

    Where nothing is known of when to come back, nothing is said: the client goes by its own backoff.
    """
    if not isinstance(error, ConcurrencyLimited):
        return Refusal(grpc.StatusCode.UNAVAILABLE, str(error), ())
    metadata: Metadata = ((REASON, error.reason),)
    if error.retry_after is not None:
        metadata += ((PUSHBACK, str(math.ceil(error.retry_after * 1000))),)
    return Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error), metadata)
