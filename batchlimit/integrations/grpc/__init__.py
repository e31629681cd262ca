"""Interceptors for gRPC servers: as many calls at once as the limiter lets; the others hear when to come back.

`ConcurrencyInterceptor` is for `grpc.server`, `AsyncConcurrencyInterceptor` for `grpc.aio.server`. Put it first among
the interceptors: those behind it do not run for a call that is refused. Leave `maximum_concurrent_rpcs` unset: grpcio
counts by it after the interceptors.

A stream is one call for as long as it lasts. If its client decides how long that is, it says nothing about the load:
let such methods pass by the limiter (`bypass`), or give them a limiter of their own.

A call passes `sync` or `aio` (the interceptor: admits or refuses), then `call` or `async_call` (runs the handler under
the permit). `details` names calls, `status` says what a status tells about the load and what a refusal answers.
"""

try:
    import grpc  # noqa: F401  said here what is missing, once for all modules of this package
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "batchlimit.integrations.grpc needs grpcio, of the 'grpc' extra: pip install 'batchlimit[grpc]'", name="grpc"
    ) from error

from batchlimit.integrations.grpc.aio import AsyncConcurrencyInterceptor
from batchlimit.integrations.grpc.details import by_metadata, by_method
from batchlimit.integrations.grpc.status import outcome_of
from batchlimit.integrations.grpc.sync import ConcurrencyInterceptor

__all__ = ["AsyncConcurrencyInterceptor", "ConcurrencyInterceptor", "by_metadata", "by_method", "outcome_of"]
