"""Protocols of stores that spend: what a Store may do beside `take`, for keys of which nobody leases."""

import asyncio
import math
from typing import Any, Protocol, runtime_checkable

from batchlimit.bucket.messages import Groups, SpendReply


class _SpendsTogether(Protocol):
    @property
    def spends_together(self) -> bool:
        """Whether many groups go in one call, and several keys in one group; else each call has one key."""
        ...


@runtime_checkable
class Spender(_SpendsTogether, Protocol):
    """Optional for a Store: it spends at buckets of which nobody leases. A store without it is asked by `take`.

    Example:
        >>> from batchlimit.stores import MemoryStore, Spender
        >>> isinstance(MemoryStore(), Spender)
        True
    """

    def spend(self, groups: Groups, *, look: bool = False, within: float = math.inf) -> SpendReply:
        """Charge each group of buckets, all of it or nothing; what happens to one is nothing to the others.

        Args:
            groups: what is to be spent, and which of it together.
            look: whether to tell the revision of the overrides (default False).
            within: seconds that somebody waits for the answer (default inf): later nothing is to be charged, if the
                store can help it. It may answer None for such a group.

        Returns:
            What became of each group.
        """
        ...


@runtime_checkable
class AsyncSpender(_SpendsTogether, Protocol):
    """Optional for an AsyncStore, as Spender is for a Store.

    Example:
        >>> import fakeredis
        >>> from batchlimit.stores import AsyncRedisStore, AsyncSpender
        >>> isinstance(AsyncRedisStore(fakeredis.FakeAsyncRedis()), AsyncSpender)
        True
    """

    async def spend(self, groups: Groups, *, look: bool = False, within: float = math.inf) -> SpendReply:
        """Charge each group of buckets, as Spender.spend does.

        Args:
            groups, look, within: as of Spender.spend, with the same defaults.

        Returns:
            What became of each group.
        """
        ...


@runtime_checkable
class AsyncSpendSender(Protocol):
    """Optional for a prompt AsyncSpender, as AsyncSender is for an AsyncStore."""

    def send_spend(self, groups: Groups, *, look: bool, within: float) -> "asyncio.Future[Any] | None":
        """Send spends in this turn of the event loop; None if they would have to wait first: then call `spend`."""
        ...

    def receive_spend(self, answer: "asyncio.Future[Any]", groups: Groups, sent: float) -> SpendReply | None:
        """Return what became of spends that were sent, or raise as `spend` does; None if `spend` has to repeat it.

        They were `sent` then, by time.monotonic().
        """
        ...
