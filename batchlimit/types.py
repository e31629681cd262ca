"""Types of the rate limiter's arguments and results, for annotations; the limiters make them, users do not."""

from typing import TYPE_CHECKING

from batchlimit.base.lazy import names

if TYPE_CHECKING:
    from batchlimit.aio.awaitable import Answer
    from batchlimit.aio.handles import AsyncKeyHandle, AsyncLimit
    from batchlimit.base.decision import Source
    from batchlimit.keyspace.reservation import (
        AsyncJointReservation,
        AsyncReservation,
        JointReservation,
        OnError,
        Reservation,
    )
    from batchlimit.quota.failure_policy import FailureSource
    from batchlimit.quota.lookup import QuotaSource
    from batchlimit.quota.template import Cost, Key
    from batchlimit.reservoir.bucket_view import Fill
    from batchlimit.sync.handles import KeyHandle, Limit
else:  # where __getattr__ would hide a name that there is not
    __getattr__, __dir__ = names(
        __name__,
        {
            "batchlimit.aio.awaitable": "Answer",
            "batchlimit.aio.handles": "AsyncKeyHandle AsyncLimit",
            "batchlimit.keyspace.reservation": "OnError Reservation JointReservation "
            "AsyncReservation AsyncJointReservation",
            "batchlimit.quota.lookup": "QuotaSource",
            "batchlimit.quota.template": "Cost Key",
            "batchlimit.reservoir.bucket_view": "Fill",
            "batchlimit.quota.failure_policy": "FailureSource",
            "batchlimit.base.decision": "Source",
            "batchlimit.sync.handles": "KeyHandle Limit",
        },
    )

__all__ = [
    "Answer",
    "AsyncJointReservation",
    "AsyncKeyHandle",
    "AsyncLimit",
    "AsyncReservation",
    "Cost",
    "FailureSource",
    "Fill",
    "JointReservation",
    "Key",
    "KeyHandle",
    "Limit",
    "OnError",
    "QuotaSource",
    "Reservation",
    "Source",
]
