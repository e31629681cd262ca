"""The one seam between the fronts and whatever holds the buckets."""

from typing import Protocol, runtime_checkable

from batchlimit.core.lease import Ask, GiveBack, Grant, Level
from batchlimit.core.quota import Quota


@runtime_checkable
class Store(Protocol):
    """Holds one bucket per key. Every method is atomic, thread-safe, and raises StoreUnavailable without an answer.

    A key is a checked, non-empty string (`core.key`); a quota's rates are all above 0: a front refuses rate 0 by
    itself. The first ask creates the bucket; a bucket untouched until it is full again may be forgotten.
    """

    @property
    def address(self) -> str:
        """Where this store is, for messages; never with a password."""
        ...

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        """Lease tokens; at most `ask.want` of them, whole ones, never past the quota."""
        ...

    def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        """Credit tokens once, never past the burst or what the host was known to hold; return how many."""
        ...

    def peek(self, key: str, quota: Quota) -> Level:
        """Look without changing anything."""
        ...

    def after_fork(self) -> None:
        """In a forked child: let go of what only the parent may use or stop."""
        ...

    def close(self) -> None:
        """Release what this store itself opened; a client that the caller made stays open."""
        ...
