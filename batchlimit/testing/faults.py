"""FaultStore and AsyncFaultStore: stores that fail on command."""

import asyncio
import copy
import functools
import inspect
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from batchlimit.bucket.messages import Groups, SpendReply
from batchlimit.errors import BucketUnavailable, StoreUnavailable
from batchlimit.stores import outage
from batchlimit.stores.memory import AsyncMemoryStore, MemoryStore
from batchlimit.stores.optional import Pauses, Spender
from batchlimit.stores.outage import addressed, unavailable
from batchlimit.stores.protocols import AsyncStore, Store

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", Store, AsyncStore)


def met(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return the same method, of a store that has its calls meet faults in `_do`; it is called or awaited as before."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        told: T = self._do(lambda inner: getattr(inner, method.__name__)(*args, **options))
        return told

    call.__doc__ = f"See {method.__qualname__}."
    return call


class FaultyPauses:
    """The pauses of a store that `do` has met its faults; they are called or awaited, as `do` is."""

    def __init__(self, do: Callable[[Callable[[Any], Any]], Any]) -> None:
        self._do = lambda call: do(lambda inner: call(inner.pauses))

    pause: Any = met(Pauses.pause)
    resume: Any = met(Pauses.resume)
    line_up: Any = met(Pauses.line_up)


class FaultyCalls:
    """The calls of a store that meet its faults in `_do`: called, or awaited where that is a coroutine function."""

    _do: Callable[[Callable[[Any], Any]], Any]
    take: Any = met(Store.take)
    give_back: Any = met(Store.give_back)
    peek: Any = met(Store.peek)

    def spend(self, groups: Groups, *, look: bool = False, within: float = math.inf) -> Any:
        """See Spender.spend."""

        def spent(inner: Any) -> Any:
            if not isinstance(inner, Spender):
                return SpendReply(-1, [None] * len(groups))
            return inner.spend(groups, look=look, within=within)

        return self._do(spent)

    @property
    def pauses(self) -> Any:
        """See Pausable."""
        return FaultyPauses(self._do)


class Faulty(FaultyCalls, Generic[S]):
    """What a fault store has of either API. A fault that is a number is of so many calls, and True of all."""

    address = "fault://"
    _memory: Callable[[], S]
    """Makes the store that answers where the test names none."""

    def __init__(
        self,
        make: Callable[[], S] | None = None,
        *,
        down: bool | int = False,
        slow: float = 0.0,
        loses_state: bool | int = False,
        loses_replies: bool | int = False,
    ) -> None:
        self.down, self.slow, self.loses_state, self.loses_replies = down, slow, loses_state, loses_replies
        self._make: Callable[[], S] = make or self._memory
        self._forget()

    def __repr__(self) -> str:
        told = {name: getattr(self, name) for name in ("down", "slow", "loses_state", "loses_replies")}
        return f"<{type(self).__name__}: {told}>"

    @property
    def spends_together(self) -> bool:
        """See Spender."""
        return isinstance(self._inner, Spender) and self._inner.spends_together

    def after_fork(self) -> None:
        """See Store.after_fork."""
        self._inner.after_fork()

    def _forget(self) -> None:
        self._inner: S = self._make()

    def _use(self, name: str) -> bool:
        """Use a fault of this name for this call, one fewer is left then; False: there is none."""
        left = getattr(self, name)
        if left is not True and left:
            setattr(self, name, left - 1)
        return bool(left)

    @contextmanager
    def _around(self, forget: Callable[[], None]) -> Iterator[None]:
        """Have a call, which is the block, meet what is wrong; `forget` has the store lose its state."""
        if self._use("down"):
            raise StoreUnavailable("a FaultStore is down, as its test says", code="REFUSED")
        if self._use("loses_state"):
            forget()
        yield
        if self._use("loses_replies"):
            raise StoreUnavailable("a FaultStore lost the reply, as its test says", code="TIMEOUT")


class _Final(BucketUnavailable):
    """A failure that ends the wait of all callers, as an open circuit breaker does. They get a copy: what failed."""

    def __init__(self, error: StoreUnavailable) -> None:
        super().__init__(*error.args, address=error.address, code=error.code)
        self.__cause__, self._error = error.__cause__, error

    def __copy__(self) -> StoreUnavailable:
        return copy.copy(self._error)


class Failures:
    """How often a store failed in a row, in a time without circuit breakers: each call asks it all the same."""

    def __init__(self, address: str) -> None:
        self._address, self._in_a_row = address, 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Have whatever a call raises be StoreUnavailable, with the address; final where a breaker would open."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  whatever a store raises
            found = error if isinstance(error, StoreUnavailable) else unavailable(error)
            self._in_a_row += 1
            if self._in_a_row >= outage.THRESHOLD:
                raise _Final(addressed(found, self._address)) from found.__cause__
            raise addressed(found, self._address) from found.__cause__
        self._in_a_row = 0


class FaultStore(Faulty[Store]):
    """A Store that fails on command, for tests of what happens then.

    Each fault may be set at any time, as in `store.down = True`. It hits all calls if it is True, or so many if it
    is a number. In frozen time a slow store moves the clock.

    Args:
        make: makes the store that answers otherwise, and another one when the state is lost (default: one in memory).
        down: calls fail before they reach the store (default False).
        slow: seconds that each call takes (default 0).
        loses_state: the store finds all of its buckets gone (default False).
        loses_replies: calls are carried out, and fail (default False).

    Example:
        >>> from batchlimit import RateLimiter
        >>> from batchlimit.testing import FaultStore
        >>> store = FaultStore(down=1)
        >>> limiter = RateLimiter(store, "2/hour")
        >>> [limiter.try_acquire("ann") for _ in range(4)]
        [False, True, True, False]
    """

    _memory = MemoryStore

    def close(self) -> None:
        """See Store.close."""
        self._inner.close()

    def _do(self, call: Callable[[Any], Any]) -> Any:
        if self.slow:
            time.sleep(self.slow)
        with self._around(self._forget):
            return call(self._inner)


class AsyncFaultStore(Faulty[AsyncStore]):
    """A FaultStore for tasks.

    Args:
        make: makes the AsyncStore that answers otherwise (default: one in memory).
        down, slow, loses_state, loses_replies: as of FaultStore (default: nothing is wrong).

    Example:
        >>> from batchlimit import AsyncRateLimiter
        >>> from batchlimit.testing import AsyncFaultStore
        >>> store = AsyncFaultStore(down=True)
        >>> limiter = AsyncRateLimiter(store, "2/hour", on_failure="open")
        >>> await limiter.try_acquire("ann")
        True
    """

    @staticmethod
    def _memory() -> AsyncStore:
        return AsyncMemoryStore(MemoryStore())

    def renew(self) -> None:
        """See AsyncStore.renew."""
        self._inner.renew()

    async def disconnect(self) -> None:
        """See AsyncStore.disconnect."""
        await self._inner.disconnect()

    async def aclose(self) -> None:
        """See AsyncStore.aclose."""
        await self._inner.aclose()

    async def _do(self, call: Callable[[Any], Any]) -> Any:
        if self.slow:
            await asyncio.sleep(self.slow)
        with self._around(self._forget):
            told = call(self._inner)
            return await told if inspect.isawaitable(told) else told
