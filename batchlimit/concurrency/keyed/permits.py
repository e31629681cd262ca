"""The permits of one call at several keys: in which order they are acquired, and how they end together."""

from collections.abc import Callable, Generator, Sequence
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self

from batchlimit.base.steps import Steps, drive
from batchlimit.concurrency.async_limiter import AsyncPermit
from batchlimit.concurrency.keyed.gates import KeyedGates
from batchlimit.concurrency.locked_gate import LockedGate
from batchlimit.concurrency.permit import BasePermit, Permit
from batchlimit.errors import ConcurrencyLimited

A = ParamSpec("A")
_SECOND = 1_000_000_000
_ROUNDS = 3
"""How often a caller lets go of everything before it begins to hold what it has while it waits."""


def entering(
    gates: KeyedGates,
    keys: Sequence[str],
    seconds: float,
    permit_of: Callable[[LockedGate], Any],
    partition: str,
    held: list[Any],
) -> Steps[None]:
    """Enter at every key within so many seconds, and add the permits to `held`; it is empty again if that ends early.

    At first a caller waits only while it holds nothing: if the next key has no room, it lets go of all that it holds,
    and begins at that key. So a full key keeps no place of another key from others. But such a caller might never get
    all of them. So after three rounds it waits with what it holds, in the order of the limits, in which `keys` are. All
    callers do so in the same order: two of them never wait for each other.
    """
    until = gates.clock() + seconds * _SECOND
    order, rounds = keys, 0
    try:
        while not held:
            for key in order:
                permit = permit_of(gates.by_key.get(key) or gates.find(key))
                if patience := permit._enter(partition, max(0.0, (until - gates.clock()) / _SECOND)):
                    if rounds < _ROUNDS and key != order[0]:
                        rounds += 1
                        order = keys if rounds == _ROUNDS else [key, *(each for each in keys if each != key)]
                        _give_back(held)
                        break
                    yield permit._wait(partition, patience)
                held.append(permit)
    except BaseException:
        _give_back(held)
        raise
    now = gates.clock()
    for permit in held:
        permit.start_ns = now  # a law is not told how long this caller waited for the last key


def _give_back(held: list[Any]) -> None:
    while held:
        held.pop().ignore()


def _of_all(complete: Callable[Concatenate[BasePermit, A], None]) -> "Callable[Concatenate[_Together, A], None]":
    """Return a method that completes all permits as this one completes one."""

    @wraps(complete)
    def completed(self: "_Together", /, *args: A.args, **options: A.kwargs) -> None:
        if not self._permits:
            raise RuntimeError(f"{self!r} cannot be completed: nobody entered it; was it awaited?")
        for permit in self._permits:
            complete(permit, *args, **options)

    completed.__doc__ = (complete.__doc__ or "").replace("the permit", "all permits", 1)
    return completed


class _Together:
    """Permits that are completed together."""

    __slots__ = ()

    _permits: Sequence[Permit | AsyncPermit]
    _keys: Sequence[str]  # in the order of the limits

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys, in the order in which they were acquired; before that in the order of the limits."""
        return tuple(str(each._locked_gate.counts.key) for each in self._permits) or tuple(self._keys)

    success, drop, ignore = _of_all(BasePermit.success), _of_all(BasePermit.drop), _of_all(BasePermit.ignore)
    answered = _of_all(BasePermit.answered)

    @property
    def shed(self) -> bool:
        """Whether this call was told to give up, at any key."""
        return any(permit.shed for permit in self._permits)

    @property
    def operation(self) -> str:
        """What kind of call it is, at every key; it may be set until the permits are complete."""
        return self._permits[0].operation

    @operation.setter
    def operation(self, operation: str) -> None:
        for permit in self._permits:
            permit.operation = operation

    def __enter__(self) -> Self:
        if not self._permits:
            raise RuntimeError(f"{self!r} was not awaited: write `async with`")
        for permit in self._permits:
            permit.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ConcurrencyLimited) and self.shed:
            self.ignore()
        shed = None
        for permit in self._permits:
            try:
                permit.__exit__(kind, error, trace)
            except ConcurrencyLimited as refusal:  # the task was cancelled for this one
                shed = refusal
        if shed is not None:
            raise shed


class Permits(_Together):
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

    __slots__ = ("_keys", "_permits")

    _permits: Sequence[Permit]

    def __init__(self, keys: Sequence[str], permits: Sequence[Permit]) -> None:
        self._keys, self._permits = keys, permits

    def check(self) -> None:
        """Raise if this call was told to give up at any key; a sheddable call is to call this now and then.

        Raises:
            ConcurrencyLimited: The call was told to give up; the reason is "shed", and `key` says at which key.
        """
        for permit in self._permits:
            permit.check()

    def __repr__(self) -> str:
        return f"<Permits of {len(self.keys)} keys>"


class AsyncPermits(_Together):
    """Permission for one task to be under way at several keys: the context of an `async with` block, or to be awaited.

    The task enters at `async with` or `await`, no sooner. The end of the block completes all permits, and so do
    `success`, `drop` and `ignore`, as those of Permit.

    Raises:
        ConcurrencyLimited: The call was refused where it would enter; `key` says which key had no room.
        LimiterClosed: The limiter was closed.
        RuntimeError: It was entered twice.

    Example:
        >>> from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter
        >>> async with AsyncKeyedConcurrencyLimiter({"user:*": 2, "all": 100}) as limiter:
        ...     async with limiter.acquire_all(["all", "user:ann"]) as permits:
        ...         permits.keys
        ('user:ann', 'all')
    """

    __slots__ = ("_begin", "_keys", "_permits", "_was_awaited")

    _permits: list[AsyncPermit]

    def __init__(self, keys: Sequence[str], begin: Callable[[list[AsyncPermit]], Steps[None]]) -> None:
        self._keys, self._begin = keys, begin
        self._permits, self._was_awaited = [], False

    def __repr__(self) -> str:
        return f"<AsyncPermits of {len(self.keys)} keys: {'entered' if self._was_awaited else 'not entered'}>"

    def __await__(self) -> Generator[object, None, Self]:
        return self._enter().__await__()

    async def __aenter__(self) -> Self:
        if not self._permits:
            await self._enter()
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    async def _enter(self) -> Self:
        if self._was_awaited:
            raise RuntimeError(f"{self!r} was awaited before")
        self._was_awaited = True
        await drive(self._begin(self._permits))
        return self
