"""AsyncAdmin: what operators do, for asyncio."""

import asyncio
from types import TracebackType
from typing import Any, Self

from batchlimit.admin.admin import Admin
from batchlimit.bucket.state import BucketState
from batchlimit.overrides.key_rule import Mode
from batchlimit.overrides.log import Entry
from batchlimit.overrides.override import Override
from batchlimit.overrides.overrides import Overrides
from batchlimit.overrides.plan import Until
from batchlimit.quota.failure_policy import FailurePolicy, Kind
from batchlimit.quota.quota import Quota
from batchlimit.unique import Unique


class AsyncAdmin(Unique):
    """An Admin whose methods are awaited; each runs in a thread.

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
        self._admin = admin

    @classmethod
    def from_url(cls, url: str, **options: Any) -> Self:
        """Connect to the store at `url`, as Admin.from_url."""
        return cls(Admin.from_url(url, **options))

    def __repr__(self) -> str:
        return f"<AsyncAdmin by {self._admin!r}>"

    async def overrides(self) -> Overrides:
        """See Admin.overrides."""
        return await asyncio.to_thread(self._admin.overrides)

    async def set(
        self,
        name: str,
        quota: Quota | str | None = None,
        *,
        mode: Mode = "enforce",
        weight: int | None = None,
        on_failure: FailurePolicy | Kind | None = None,
        until: Until = None,
        why: str = "",
    ) -> Override:
        """See Admin.set."""
        rest: dict[str, Any] = {"mode": mode, "weight": weight, "on_failure": on_failure, "until": until, "why": why}
        return await asyncio.to_thread(self._admin.set, name, quota, **rest)

    async def hold(self, name: str, until: Until, *, why: str = "") -> Override:
        """See Admin.hold."""
        return await asyncio.to_thread(self._admin.hold, name, until, why=why)

    async def open(self, name: str, until: Until, *, why: str = "") -> Override:
        """See Admin.open."""
        return await asyncio.to_thread(self._admin.open, name, until, why=why)

    async def bucket(self, key: str) -> BucketState | None:
        """See Admin.bucket."""
        return await asyncio.to_thread(self._admin.bucket, key)

    async def refill(self, key: str, *, why: str = "") -> tuple[float, ...] | None:
        """See Admin.refill."""
        return await asyncio.to_thread(self._admin.refill, key, why=why)

    async def clear(self, key: str, *, why: str = "") -> tuple[float, ...] | None:
        """See Admin.clear."""
        return await asyncio.to_thread(self._admin.clear, key, why=why)

    async def unset(self, *names: str, why: str = "") -> tuple[str, ...]:
        """See Admin.unset."""
        return await asyncio.to_thread(self._admin.unset, *names, why=why)

    async def history(self, limit: int = 20) -> list[Entry]:
        """See Admin.history."""
        return await asyncio.to_thread(self._admin.history, limit)

    async def aclose(self) -> None:
        """See Admin.close."""
        await asyncio.to_thread(self._admin.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
