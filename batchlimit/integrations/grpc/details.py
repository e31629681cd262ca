"""What the method and the metadata of a call say of it, before it runs."""

from collections.abc import Callable
from typing import Any

import grpc

Name = Callable[[grpc.HandlerCallDetails], str]
"""Returns the name of a call's partition; it runs before every call, where nothing may block."""


def nobody(details: grpc.HandlerCallDetails) -> str:
    """Return no name: the call gets what is spare; that is everything if there are no partitions."""
    return ""


def never(details: grpc.HandlerCallDetails) -> bool:
    """Say of every call that it is not sheddable."""
    return False


def alike(details: grpc.HandlerCallDetails) -> int:
    """Return the same priority for all."""
    return 0


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
    if key.lower().endswith("-bin"):
        raise ValueError(f"a partition is named by text, and the values under {key!r} are bytes")
    key = key.lower()  # as they all arrive

    def name(details: grpc.HandlerCallDetails) -> str:
        return next((str(value) for k, value in details.invocation_metadata or () if k == key), "")

    return name


class Changed(grpc.ClientCallDetails):
    """Details of a client's call, some of them changed.

    Args:
        details: those of the call.
        **changed: what is different, such as `timeout=2.0`.
    """

    def __init__(self, details: Any, **changed: Any) -> None:
        self._details = details
        vars(self).update(changed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._details, name)
