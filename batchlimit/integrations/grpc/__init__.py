"""Interceptors for gRPC: rules for servers and clients, and as many calls at once as a concurrency limiter lets.

| | threads | asyncio |
|---|---|---|
| server, rules | `RateLimitInterceptor` | `AsyncRateLimitInterceptor` |
| client, rules | `RateLimitClientInterceptor` | `AsyncRateLimitClient` |
| server, calls at once | `ConcurrencyInterceptor` | `AsyncConcurrencyInterceptor` |
| client, calls at once | `ConcurrencyClientInterceptor` | `AsyncConcurrencyClient` |
| server, one of these for each method | `ByMethod` | `AsyncByMethod` |

Put `ConcurrencyInterceptor` first among the interceptors: those behind it do not run for a call that is refused. Leave
`maximum_concurrent_rpcs` unset: grpcio counts by it after the interceptors.

A stream is one call for as long as it lasts. If its client decides how long that is, it says nothing about the load:
let such methods pass, or give them a limiter of their own (`ByMethod`).

A call of a server passes an interceptor (admits or refuses), then `serving` (runs the handler and tells how the call
ended). `details` says what a call is by its method and metadata, `answer` what statuses and refusals are.
"""

from batchlimit.base.lazy import needed

with needed(__name__, "grpc", "grpcio"):
    import grpc  # noqa: F401  said here what is missing, once for all modules of this package

from batchlimit.integrations.grpc.answer import CallResponse, outcome_of
from batchlimit.integrations.grpc.client_calls import AsyncRefusedCall, RefusedCall
from batchlimit.integrations.grpc.client_rules import (
    AsyncConcurrencyClient,
    AsyncRateLimitClient,
    ConcurrencyClientInterceptor,
    RateLimitClientInterceptor,
)
from batchlimit.integrations.grpc.concurrency import (
    AsyncByMethod,
    AsyncConcurrencyInterceptor,
    ByMethod,
    ConcurrencyInterceptor,
)
from batchlimit.integrations.grpc.details import by_metadata, by_method, check_permit, current_permit
from batchlimit.integrations.grpc.rate_limit import AsyncRateLimitInterceptor, RateLimitInterceptor

__all__ = [
    "AsyncByMethod",
    "AsyncConcurrencyClient",
    "AsyncConcurrencyInterceptor",
    "AsyncRateLimitClient",
    "AsyncRateLimitInterceptor",
    "AsyncRefusedCall",
    "ByMethod",
    "CallResponse",
    "ConcurrencyClientInterceptor",
    "ConcurrencyInterceptor",
    "RateLimitClientInterceptor",
    "RateLimitInterceptor",
    "RefusedCall",
    "by_metadata",
    "by_method",
    "check_permit",
    "current_permit",
    "outcome_of",
]
