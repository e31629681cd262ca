"""KeyedConcurrencyLimiter for threads, AsyncKeyedConcurrencyLimiter for tasks."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal, overload

from batchlimit.base.redaction import shown
from batchlimit.base.setting import between, function, several, whole
from batchlimit.base.steps import run
from batchlimit.base.waiting import patience
from batchlimit.concurrency.async_limiter import AsyncPermit
from batchlimit.concurrency.classification import Classify, classify
from batchlimit.concurrency.keyed.gates import KeyedGates
from batchlimit.concurrency.keyed.limits import Keyed, KeyedStatistics, KeyStatistics
from batchlimit.concurrency.keyed.permits import AsyncPermits, Permits, entering
from batchlimit.concurrency.later import Admitted, Refused
from batchlimit.concurrency.limiter import LocalLimiter, TaskLimiter, ThreadedLimiter
from batchlimit.concurrency.locked_gate import Bypass, GateOptions
from batchlimit.concurrency.permit import Permit
from batchlimit.concurrency.shedding import Shedding
from batchlimit.concurrency.watchers.watcher import Watcher


class BaseKeyedLimiter(LocalLimiter):
    """The gates of all keys. Each of the two APIs has its own way to wait at them."""

    _gates: KeyedGates

    def __init__(
        self,
        limits: Mapping[str, int | Keyed],
        *,
        classify: Classify = classify,
        bypass: Bypass | None = None,
        max_keys: int = 10_000,
        idle_after: float = 60.0,
        watchers: Sequence[Watcher] = (),
        every: float = 30.0,
        shedding: Shedding | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        max_keys, idle_after = whole("max_keys", max_keys), between("idle_after (seconds)", idle_after, 0, 1e9, "[]")
        options = GateOptions.checked(classify, bypass, watchers, shedding, clock)
        if shedding is not None and shedding.over is not None:
            raise ValueError("over= is about the limit of one key: give such a shedding to Keyed")
        gates = KeyedGates(limits, options, max_keys, idle_after)
        self._by_key = gates.by_key
        self._begin(gates, (*options.watchers, gates) if gates.watches_keys else options.watchers, every, gates.sheds)

    def statistics(self) -> KeyedStatistics:
        """Return how many calls are under way and wait now, and what was counted so far, by pattern.

        Returns:
            A copy, which changes no more.
        """
        return self._gates.statistics(self._rounds.statistics())

    @overload
    def listen(self, changed: Callable[[str, int, int], object]) -> None: ...
    @overload
    def listen(self, changed: Callable[[str, int, int, str], object], *, why: Literal[True]) -> None: ...
    def listen(self, changed: Callable[..., object], *, why: bool = False) -> None:
        """Have a function called after each change of the limit of a key.

        It is called in the thread that ended a call, without any lock: let it be quick. What it raises is logged. A key
        whose law is shared takes over the limit when one of its own calls ends, and `changed` is called then.

        Args:
            changed: Gets the key, and its limit before and after (calls).
            why: Whether `changed` gets the reason, too; see `ConcurrencyLimiter.listen` (default False).
        """
        self._gates.listen(function("changed", changed), why)

    def busiest(self, count: int = 10) -> list[KeyStatistics]:
        """Return the keys with the most calls under way and waiting now.

        Args:
            count: How many keys at most (default 10).

        Returns:
            The keys, the busiest first; keys without a call are left out.
        """
        return sorted(self._gates.busy(), key=lambda key: (-key.in_flight - key.waiting, key.key))[:count]

    def _order(self, keys: Iterable[str]) -> list[str]:
        """Return keys in the order in which all callers acquire them: that of the limits, then by name."""
        found = several("keys", keys, "keys")
        numbered = {(self._gates.pattern_of(key).number, key) for key in found}
        if not found:
            raise ValueError("there must be at least one key to acquire")
        if len(numbered) < len(found):
            raise ValueError(f"a key is named twice in {shown(found)}: one call holds one place at a key")
        return [key for _number, key in sorted(numbered)]


class KeyedConcurrencyLimiter(ThreadedLimiter, BaseKeyedLimiter):
    """Limits how many calls of each key are under way at once: of a repository, a user, a tenant.

    It is safe in threads and over fork. It limits this process alone.

    Args:
        limits: A dict from keys and glob patterns to limits: a whole number of calls, or Keyed. A key counts by the
            first entry that names it: the key itself, then the patterns in their order, then "*".
        classify, clock: As of ConcurrencyLimiter, with the same defaults.
        bypass: Called with operation and key; returns True for calls that are not limited (default None: all are).
        max_keys: Keys to keep in memory (default 10,000). Keys with a call under way stay in any case. A key that
            leaves forgets what its law has learnt.
        idle_after: After so many seconds (default 60) a key without calls leaves the memory when other keys come.
        watchers: As of ConcurrencyLimiter; they tell the laws of all keys (default: none). `Keyed` has those of one.
        every: The period of all watchers and of shedding (seconds, default 30).
        shedding: When to end calls of all keys, by `watchers` (default None: never). `Keyed` has that of one key.

    Raises:
        TypeError, ValueError: There are no limits, an argument is of the wrong type or out of its range, or `shedding`
            or a `Gitaly` has no watchers.

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

    def acquire(
        self,
        key: str,
        partition: str = "",
        *,
        timeout: float | None = None,
        operation: str = "",
        priority: int = 0,
        sheddable: bool = False,
    ) -> Permit:
        """Return a permit of a key, at once or when it is this caller's turn.

        Args:
            key: What is limited, such as "repo:42".
            partition, timeout, operation, priority, sheddable: As of `ConcurrencyLimiter.acquire`, defaults too.

        Returns:
            The permit, held until it is completed.

        Raises:
            ConcurrencyLimited, LimiterClosed: As `ConcurrencyLimiter.acquire`.
            TypeError, ValueError: As there; or the key is no str, is empty, or has no limit.
        """
        gate = (self._by_key.get(key) if key.__class__ is str else None) or self._gates.find(key)
        permit = Permit(gate, operation, priority, sheddable)
        wait = math.inf if timeout is None else patience(timeout)
        if seconds := permit._enter(partition, wait):
            permit._wait(partition, seconds)
        if sheddable:
            permit._expose()
        return permit

    def acquire_later(
        self,
        admitted: Admitted,
        refused: Refused,
        key: str,
        partition: str = "",
        *,
        timeout: float | None = None,
        operation: str = "",
        priority: int = 0,
        sheddable: bool = False,
    ) -> Permit | None:
        """Return a permit of a key at once, if there is room; else return None, wait without a thread, be called back.

        Args:
            admitted, refused: As of `ConcurrencyLimiter.acquire_later`.
            key, partition, timeout, operation, priority, sheddable: As of `acquire`, with the same defaults.

        Returns:
            The permit, held until it is completed; or None: one of the two functions will be called, once.

        Raises:
            ConcurrencyLimited: The call was refused, for it may not wait or the queue is full.
            LimiterClosed, TypeError, ValueError: As `acquire`.
        """
        gate = (self._by_key.get(key) if key.__class__ is str else None) or self._gates.find(key)
        permit = Permit(gate, operation, priority, sheddable)
        return self._deadlines.admit(permit, partition, patience(timeout), (admitted, refused))

    def acquire_all(
        self,
        keys: Iterable[str],
        partition: str = "",
        *,
        timeout: float | None = None,
        operation: str = "",
        priority: int = 0,
        sheddable: bool = False,
    ) -> Permits:
        """Return permits of several keys, all of them or none.

        A caller waits for a key that has no room while it holds nothing; turned away three times after that, it waits
        with what it holds. Callers never wait for each other in a circle.

        Args:
            keys: What is limited, each key once. The limits say in which order keys are acquired: put those of which
                few calls are under way, such as users, before the process as a whole.
            partition, timeout, operation, priority, sheddable: As of `acquire`, with the same defaults, at every key.

        Returns:
            The permits, held until they are completed together.

        Raises:
            ConcurrencyLimited: The call was refused; `key` says which key had no room.
            LimiterClosed, TypeError, ValueError: As `acquire`; or a key is named twice, or there is none.
        """
        order, held = self._order(keys), list[Permit]()
        permit_of = partial(Permit, operation=operation, priority=priority, sheddable=sheddable)
        run(entering(self._gates, order, patience(timeout), permit_of, partition, held))
        for permit in held if sheddable else ():
            permit._expose()
        return Permits(order, held)


class AsyncKeyedConcurrencyLimiter(TaskLimiter, BaseKeyedLimiter):
    """Limits how many calls of each key are under way at once: of a repository, a user, a tenant.

    One limiter serves the tasks of any event loops, also of several threads. It limits this process alone.

    Args:
        limits, classify, bypass, max_keys, idle_after, watchers, every, shedding, clock: As of KeyedConcurrencyLimiter,
            with the same defaults.

    Raises:
        TypeError, ValueError: As KeyedConcurrencyLimiter.

    Example:
        >>> from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter
        >>> async with AsyncKeyedConcurrencyLimiter({"repo:*": 20}) as limiter:
        ...     async with limiter.acquire("repo:42"):
        ...         limiter.statistics().patterns["repo:*"].in_flight
        1
    """

    def acquire(
        self,
        key: str,
        partition: str = "",
        *,
        timeout: float | None = None,
        operation: str = "",
        priority: int = 0,
        sheddable: bool = False,
    ) -> AsyncPermit:
        """Return a permit to be awaited, or to be the context of an `async with` block: the task enters there.

        Args:
            key, partition, timeout, operation, priority: As of `KeyedConcurrencyLimiter.acquire`, defaults too.
            sheddable: As of `AsyncConcurrencyLimiter.acquire` (default False).

        Returns:
            The permit. It raises ConcurrencyLimited or LimiterClosed where the task enters.

        Raises:
            LimiterClosed, TypeError, ValueError: As `KeyedConcurrencyLimiter.acquire`.
        """
        gate = (self._by_key.get(key) if key.__class__ is str else None) or self._gates.find(key)
        permit = AsyncPermit(gate, operation, priority, sheddable)
        permit._partition, permit._timeout = partition, math.inf if timeout is None else patience(timeout)
        return permit

    def acquire_all(
        self,
        keys: Iterable[str],
        partition: str = "",
        *,
        timeout: float | None = None,
        operation: str = "",
        priority: int = 0,
        sheddable: bool = False,
    ) -> AsyncPermits:
        """Return permits of several keys, all of them or none, to be awaited or entered with `async with`.

        Args:
            keys, partition, timeout, operation, priority: As of `KeyedConcurrencyLimiter.acquire_all`, defaults too.
            sheddable: As of `acquire` (default False).

        Returns:
            The permits. They raise ConcurrencyLimited, whose `key` had no room, or LimiterClosed where the task enters.

        Raises:
            TypeError, ValueError: As `KeyedConcurrencyLimiter.acquire_all`.
        """
        permit_of = partial(AsyncPermit, operation=operation, priority=priority, sheddable=sheddable)
        order = self._order(keys)
        return AsyncPermits(order, partial(entering, self._gates, order, patience(timeout), permit_of, partition))
