"""Interceptors for gRPC servers: so many calls at once as the limiter lets, the others are told when to come back.

`ConcurrencyInterceptor` is for `grpc.server`, `AsyncConcurrencyInterceptor` for `grpc.aio.server`. Put it first among
the interceptors: those behind it do not run for a call that is refused. And leave `maximum_concurrent_rpcs` unset, for
grpcio counts by it after the interceptors.

A stream is one call for as long as it lasts. Where that is up to its client, it says nothing about the load: let such
methods pass by the limiter (`bypass`), or give them to one of their own.
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
