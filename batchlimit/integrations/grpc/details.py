"""As what a call comes: what its method and its metadata say of it."""

from collections.abc import Callable

import grpc

Name = Callable[[grpc.HandlerCallDetails], str]
"""Returns the name of a call's partition; it runs before every call, where nothing may block."""


def nobody(details: grpc.HandlerCallDetails) -> str:
    """Return no name: the call gets what is spare, which is all where there are no partitions."""
    return ""


def never(details: grpc.HandlerCallDetails) -> bool:
    """Say of no call that it may be given up."""
    return False


def alike(details: grpc.HandlerCallDetails) -> int:
    """Return the same priority for all."""
    return 0


def by_method(details: grpc.HandlerCallDetails) -> str:
    """Return the method in full: `/package.Service/Method`."""
    return details.method


def by_metadata(key: str) -> Name:
    """Return how to name a call by the first value under this key of its metadata; by no name where it has none."""
    if key.lower().endswith("-bin"):
        raise ValueError(f"a partition is named by text, and the values under {key!r} are bytes")
    key = key.lower()  # as they all arrive

    def name(details: grpc.HandlerCallDetails) -> str:
        return next((str(value) for k, value in details.invocation_metadata or () if k == key), "")

    return name
