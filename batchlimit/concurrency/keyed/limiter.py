"""KeyedConcurrencyLimiter: as many calls at once as each key may have, for threads."""

import math
from collections.abc import Iterable
from functools import cached_property

from batchlimit.base.unique import Closing
from batchlimit.base.waiting import patience
from batchlimit.concurrency.keyed.base_limiter import BaseKeyedLimiter
from batchlimit.concurrency.keyed.permits import AcquireOrder, Permits, entering
from batchlimit.concurrency.later import Admitted, Deadlines, Refused
from batchlimit.concurrency.permit import Permit

_SECOND = 1_000_000_000


class KeyedConcurrencyLimiter(Closing, BaseKeyedLimiter):
    """Limits how many calls of each key are under way at once: of a repository, a user, a tenant.

    It is safe in threads and over fork. It limits this process alone.

    Args:
        limits: A dict from keys and glob patterns to limits: a whole number of calls, or Keyed, which adds a queue or a
            law. A key counts by the first entry that names it: the key itself, then the patterns in their order, then
            "*".
        classify: Returns what an exception that ended a call tells about the load (default: `classify`).
        max_keys: Keys to keep in memory (default 10,000). Keys with a call under way stay in any case. A key that
            leaves forgets what its law has learnt.
        idle_after: After so many seconds (default 60) a key without calls leaves the memory when other keys come.
        clock: Returns ns and never runs backwards (default `time.monotonic_ns`).

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: There are no limits, a limit is below 1, or a number is out of its range.

    Example:
        >>> from batchlimit import ConcurrencyLimited
        >>> from batchlimit.concurrency import KeyedConcurrencyLimiter
        >>> limiter = KeyedConcurrencyLimiter({"repo:*": 1, "*": 20})
        >>> with limiter.acquire("repo:42"):
        ...     limiter.acquire("repo:43").success()
        ...     try:
        ...         limiter.acquire("repo:42")
        ...     except ConcurrencyLimited as refusal:
        ...         print(refusal.reason, refusal.key)
        limit repo:42
        >>> limiter.close()
    """

    def acquire(self, key: str, *, timeout: float | None = None, operation: str = "", priority: int = 0) -> Permit:
        """Return a permit of a key, at once or when it is this caller's turn.

        Args:
            key: What is limited, such as "repo:42".
            timeout: How long to wait at most (seconds). None, the default: as long as the queue lets it; 0: not at all.
            operation: What kind of call it is, for laws that hold unlike kinds apart (default "").
            priority: Callers of high priority are served first in the queue (a whole number, default 0).

        Returns:
            The permit, held until it is completed.

        Raises:
            ConcurrencyLimited: The call was refused; `reason` says why, `retry_after` when to come back.
            LimiterClosed: The limiter was closed.
            TypeError: The key is no str, `timeout` no number, or `priority` no whole number where the call has to wait.
            ValueError: The key has no limit or is empty, or `timeout` is below 0.
        """
        gate = self._by_key.get(key) or self._gates.find(key)
        permit = Permit(gate, operation, priority, False)
        wait = math.inf if timeout is None else patience(timeout)
        if seconds := gate.enter(permit, "", wait):
            permit._wait("", seconds)
        return permit

    def acquire_later(
        self,
        admitted: Admitted,
        refused: Refused,
        key: str,
        *,
        timeout: float | None = None,
        operation: str = "",
        priority: int = 0,
    ) -> Permit | None:
        """Return a permit of a key at once, if there is room; else return None, wait without a thread, be called back.

        Args:
            admitted: Called with the permit, held, when it is this call's turn, by the thread that made room: let it be
                quick.
            refused: Called with the error instead, in a background thread, if the call waited in vain.
            key, timeout, operation, priority: As of `acquire`, with the same defaults.

        Returns:
            The permit, held until it is completed; or None: one of the two functions will be called, once.

        Raises:
            ConcurrencyLimited: The call was refused, for it may not wait or the queue is full.
            LimiterClosed, TypeError, ValueError: As `acquire`.
        """
        gate = self._by_key.get(key) or self._gates.find(key)
        permit = Permit(gate, operation, priority, False)
        wait = math.inf if timeout is None else patience(timeout)
        return self._deadlines.enter(gate, permit, "", wait, (admitted, refused))

    @cached_property
    def _deadlines(self) -> Deadlines:
        return Deadlines(self._gates.clock)

    def acquire_all(
        self, keys: Iterable[str], *, timeout: float | None = None, operation: str = "", priority: int = 0
    ) -> Permits:
        """Return permits of several keys, all of them or none.

        A caller waits for a key that has no room while it holds nothing, so it keeps no place from others. If it was
        turned away three times after that, it waits with what it holds. Callers never wait for each other in a circle.

        Args:
            keys: What is limited, each key once. The limits say in which order keys are acquired: put those of which
                few calls are under way, such as users, before the process as a whole.
            timeout, operation, priority: As of `acquire`, with the same defaults.

        Returns:
            The permits, held until they are completed together.

        Raises:
            ConcurrencyLimited: The call was refused; `key` says which key had no room.
            LimiterClosed, TypeError, ValueError: As `acquire`; or a key is named twice, or there is none.

        Example:
            >>> limiter = KeyedConcurrencyLimiter({"user:*": 2, "all": 100})
            >>> with limiter.acquire_all(["user:ann", "all"], timeout=0):
            ...     limiter.statistics().patterns["all"].in_flight
            1
            >>> limiter.close()
        """
        order, held = AcquireOrder(self._order(keys)), list[Permit]()
        until = self._gates.clock() + patience(timeout) * _SECOND
        waiting = entering(self._gates, order, until, lambda gate: Permit(gate, operation, priority, False), held)
        try:
            for permit, seconds in waiting:
                permit._wait("", seconds)
        finally:
            waiting.close()
        return Permits(order.this_round(), held)

    def close(self) -> None:
        """Let no call enter any more; waiters get LimiterClosed, calls under way go on."""
        self._gates.close()
