"""Several permits of one call, completed together."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from batchlimit.concurrency.permit import Permit


class Permits:
    """Permission for one call to be under way at several keys, held from `acquire_all` on.

    The end of its `with` block completes all of them, and so do `success`, `drop` and `ignore`, as those of Permit.

    Attributes:
        keys: The keys, in the order in which they were acquired.

    Example:
        >>> from batchlimit.concurrency import KeyedConcurrencyLimiter
        >>> limiter = KeyedConcurrencyLimiter({"user:*": 2, "repo:*": 10, "all": 100})
        >>> with limiter.acquire_all(["all", "repo:42", "user:ann"]) as permits:
        ...     permits.keys
        ('user:ann', 'repo:42', 'all')
        >>> limiter.close()
    """

    __slots__ = ("_permits", "keys")

    def __init__(self, keys: Sequence[str], permits: Sequence[Permit]) -> None:
        self.keys, self._permits = tuple(keys), permits

    def __repr__(self) -> str:
        return f"<Permits of {len(self.keys)} keys>"

    def success(self) -> None:
        """Complete all permits: the call was served."""
        for permit in self._permits:
            permit.success()

    def drop(self) -> None:
        """Complete all permits: load made the call fail."""
        for permit in self._permits:
            permit.drop()

    def ignore(self) -> None:
        """Complete all permits: the call tells nothing about the load."""
        for permit in self._permits:
            permit.ignore()

    def __enter__(self) -> Self:
        for permit in self._permits:
            permit.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for permit in self._permits:
            permit.__exit__(kind, error, trace)
