"""AsyncAdmin: what operators do, for asyncio."""

import asyncio
from collections.abc import Mapping
from typing import Any, Self, Unpack

from batchlimit.admin.admin import Admin
from batchlimit.admin.buckets import Buckets
from batchlimit.admin.plan import Plan
from batchlimit.admin.terms import Terms, Wish
from batchlimit.base.unique import Unique
from batchlimit.bucket.state import BucketState
from batchlimit.quota.overrides.override import Override
from batchlimit.quota.overrides.overrides import Entry, Overrides
from batchlimit.quota.overrides.plan import Difference, Until
from batchlimit.quota.quota import Quota


class AsyncBuckets:
    """Buckets whose methods are awaited: `buckets` of an AsyncAdmin."""

    __slots__ = ("_buckets",)

    def __init__(self, buckets: Buckets) -> None:
        self._buckets = buckets

    def __repr__(self) -> str:
        return f"<AsyncBuckets by {self._buckets!r}>"

    async def get(self, key: str) -> BucketState | None:
        """See Buckets.get."""
        return await asyncio.to_thread(self._buckets.get, key)

    async def refill(self, key: str, *, why: str = "") -> tuple[float, ...] | None:
        """See Buckets.refill."""
        return await asyncio.to_thread(self._buckets.refill, key, why=why)

    async def clear(self, key: str, *, why: str = "") -> tuple[float, ...] | None:
        """See Buckets.clear."""
        return await asyncio.to_thread(self._buckets.clear, key, why=why)

    async def resume(self, key: str) -> bool:
        """See Buckets.resume."""
        return await asyncio.to_thread(self._buckets.resume, key)


class AsyncAdmin(Unique):
    """An Admin whose methods are awaited; each runs in a thread.

    It has 11 public methods, because an Admin has as many.

    Attributes:
        buckets: looks into buckets, and fills them.

    Example:
        >>> import asyncio
        >>> from batchlimit.admin import Admin, AsyncAdmin
        >>> from batchlimit.stores import MemoryStore
        >>> async def main():
        ...     async with AsyncAdmin(Admin(MemoryStore())) as admin:
        ...         return await admin.set("search:*", "20/s")
        >>> print(asyncio.run(main()))
        search:* 20/s
    """

    def __init__(self, admin: Admin) -> None:
        """Use an Admin; `aclose` closes it."""
        self._admin, self.buckets = admin, AsyncBuckets(admin.buckets)

    @classmethod
    def from_url(cls, url: str, **options: Any) -> Self:
        """Connect to the store at `url`, as Admin.from_url."""
        return cls(Admin.from_url(url, **options))

    def __repr__(self) -> str:
        return f"<AsyncAdmin by {self._admin!r}>"

    async def overrides(self) -> Overrides:
        """See Admin.overrides."""
        return await asyncio.to_thread(self._admin.overrides)

    async def set(self, name: str, quota: Quota | str | None = None, **terms: Unpack[Terms]) -> Override:
        """See Admin.set."""
        return await asyncio.to_thread(self._admin.set, name, quota, **terms)

    async def apply(
        self, wanted: Mapping[str, Wish], *, prune: bool = False, why: str = "", dry_run: bool = False
    ) -> Difference:
        """See Admin.apply."""
        return await asyncio.to_thread(self._admin.apply, wanted, prune=prune, why=why, dry_run=dry_run)

    async def plan(self, name: str, quota: Quota | str | None = None, **terms: Unpack[Terms]) -> Plan:
        """See Admin.plan."""
        return await asyncio.to_thread(self._admin.plan, name, quota, **terms)

    async def hold(self, name: str, until: Until, *, why: str = "") -> Override:
        """See Admin.hold."""
        return await asyncio.to_thread(self._admin.hold, name, until, why=why)

    async def open(self, name: str, until: Until, *, why: str = "") -> Override:
        """See Admin.open."""
        return await asyncio.to_thread(self._admin.open, name, until, why=why)

    async def unset(self, *names: str, why: str = "") -> tuple[str, ...]:
        """See Admin.unset."""
        return await asyncio.to_thread(self._admin.unset, *names, why=why)

    async def clock(self) -> float:
        """See Admin.clock."""
        return await asyncio.to_thread(self._admin.clock)

    async def history(self, limit: int = 20) -> list[Entry]:
        """See Admin.history."""
        return await asyncio.to_thread(self._admin.history, limit)

    async def aclose(self) -> None:
        """See Admin.close."""
        await asyncio.to_thread(self._admin.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
