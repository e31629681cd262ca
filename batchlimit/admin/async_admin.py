"""AsyncAdmin: what operators do, for asyncio."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from batchlimit.admin.admin import Admin
from batchlimit.admin.buckets import Buckets
from batchlimit.base.unique import Unique

P = ParamSpec("P")
T = TypeVar("T")


def _in_thread(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return a method to be awaited, which runs this one in a thread."""

    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        return await asyncio.to_thread(getattr(self._blocking, method.__name__), *args, **options)

    call.__doc__ = f"See {method.__qualname__}."
    return call


class AsyncBuckets:
    """Buckets whose methods are awaited: `buckets` of an AsyncAdmin."""

    __slots__ = ("_blocking",)

    def __init__(self, buckets: Buckets) -> None:
        self._blocking = buckets

    def __repr__(self) -> str:
        return f"<AsyncBuckets by {self._blocking!r}>"

    get = _in_thread(Buckets.get)
    refill = _in_thread(Buckets.refill)
    clear = _in_thread(Buckets.clear)
    resume = _in_thread(Buckets.resume)


class AsyncAdmin(Unique):
    """An Admin whose methods are awaited; each runs in a thread.

    Attributes:
        buckets: looks into buckets, and fills them.

    Example:
        >>> from batchlimit.admin import Admin, AsyncAdmin
        >>> from batchlimit.stores import MemoryStore
        >>> async with AsyncAdmin(Admin(MemoryStore())) as admin:
        ...     print(await admin.set("search:*", "20/s"))
        search:* 20/s
    """

    def __init__(self, admin: Admin) -> None:
        """Use an Admin; `aclose` closes it."""
        self._blocking, self.buckets = admin, AsyncBuckets(admin.buckets)

    @classmethod
    def from_url(cls, url: str, **options: Any) -> Self:
        """Connect to the store at `url`, as Admin.from_url."""
        return cls(Admin.from_url(url, **options))

    def __repr__(self) -> str:
        return f"<AsyncAdmin by {self._blocking!r}>"

    overrides = _in_thread(Admin.overrides)
    set = _in_thread(Admin.set)
    apply = _in_thread(Admin.apply)
    plan = _in_thread(Admin.plan)
    hold = _in_thread(Admin.hold)
    open = _in_thread(Admin.open)
    unset = _in_thread(Admin.unset)
    clock = _in_thread(Admin.clock)
    history = _in_thread(Admin.history)
    aclose = _in_thread(Admin.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
