"""SharedConcurrencyLimiter: as many calls at once as each key may have in the whole fleet, for threads."""

from types import TracebackType
from typing import Self

from batchlimit.blocking import warn_in_loop
from batchlimit.shared.base_limiter import BaseSharedLimiter, checked
from batchlimit.shared.line import Waiter
from batchlimit.shared.permit import SharedPermit
from batchlimit.waiting import patience
from batchlimit.waking import Turn


class SharedConcurrencyLimiter(BaseSharedLimiter):
    """Limits how many calls of each key are under way at once, over all processes that share a store.

    The store lends permits to each limiter instance for a lease, which a background thread renews. Never more than
    `limit` permits of a key are held over the fleet, as long as calls stop whose permit is lost. It is safe in threads
    and over fork: a child holds nothing.

    Args:
        store: A RedisStore or a MemoryStore; `from_url` makes one.
        limits: A dict from keys and glob patterns to limits: a whole number of permits, or Shared, which adds a queue
            and a lease. A key counts by the first entry that names it: the key itself, then the patterns in their
            order, then "*". While instances name different limits, the lowest counts.
        weight: The part of this instance while instances compete (whole number, default 1).
        deadline: How long the store may take to answer (seconds, default 0.5; a quarter of the shortest lease at most).
        on_failure: What callers get while the store is away: "closed" (default) raises StoreUnavailable, "open" admits,
            `FailurePolicy.local(instances=8)` admits an eighth of the limit. Or a dict from keys and patterns to those.

    Raises:
        TypeError, ValueError: An argument cannot work.

    Example:
        >>> from batchlimit import ConcurrencyLimited
        >>> from batchlimit.shared import SharedConcurrencyLimiter
        >>> limiter = SharedConcurrencyLimiter.from_url("memory://", {"export:*": 1})
        >>> with limiter.acquire("export:42"):
        ...     try:
        ...         limiter.acquire("export:42", timeout=0)
        ...     except ConcurrencyLimited as refusal:
        ...         print(refusal.reason, refusal.key)
        limit export:42
        >>> limiter.close()
    """

    def acquire(self, key: str, *, timeout: float | None = None, priority: int = 0) -> SharedPermit:
        """Return a permit of a key, at once or when it is this caller's turn.

        Args:
            key: What is limited, such as "export:42".
            timeout: How long to wait at most (seconds). None, the default: as long as the queue lets it; 0: for the
                store's answer alone, not for a release.
            priority: Of the callers that wait in this process, those of higher priority are served first (whole
                number, default 0). One place of eight goes to who has waited longest.

        Returns:
            The permit, held until it is released.

        Raises:
            ConcurrencyLimited: There was no permit in time ("limit", "queue_timeout"), or the queue was full.
            LimiterClosed: The limiter was closed.
            StoreUnavailable: The store is away, and `on_failure` is "closed" for this key.
            TypeError: The key is no str, `timeout` no number, or `priority` no whole number.
            ValueError: The key has no limit or is empty, or `timeout` is below 0.
        """
        permit, wait = SharedPermit(self._engine, key), patience(timeout)
        if waits := self._engine.enter(permit, wait, checked(priority), Turn):
            self._wait(permit, *waits)
        return permit

    def _wait(self, permit: SharedPermit, waiter: Waiter, turn: Turn, seconds: float) -> None:
        warn_in_loop()
        try:
            turn.wait(seconds)
        except BaseException:
            self._engine.desert(permit.key, waiter)
            raise
        self._engine.stop_waiting(permit, waiter)

    def close(self) -> None:
        """Let no call enter any more, and give back what is free; waiters get LimiterClosed, calls under way go on."""
        self._end.detach()
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
