"""The pauses of keys whose buckets are in the memory of this process."""

import math
from collections.abc import Callable
from typing import Protocol

from batchlimit.bucket.bucket import Bucket
from batchlimit.quota.quota import Quota

_SECOND = 1_000_000


class _Change(Protocol):
    def __call__(self, key: str, quota: Quota | None, change: Callable[[Bucket, int], float]) -> float:
        """Change a bucket; one that is not there begins by the quota, if there is one."""
        ...


class MemoryPauses:
    """The pauses of a MemoryStore; see lua/pause.lua."""

    __slots__ = ("_change",)

    def __init__(self, change: _Change) -> None:
        self._change = change

    def pause(self, key: str, quota: Quota, seconds: float, why: str) -> float:
        """See Pauses.pause."""
        lasting = math.ceil(seconds * _SECOND)
        return self._change(key, quota, lambda bucket, now: bucket.pause(lasting, now)) / _SECOND

    def resume(self, key: str) -> bool:
        """See Pauses.resume."""
        return bool(self._change(key, None, lambda bucket, now: bucket.resume(now)))


class AsyncMemoryPauses:
    """See MemoryPauses."""

    __slots__ = ("_pauses",)

    def __init__(self, pauses: MemoryPauses) -> None:
        self._pauses = pauses

    async def pause(self, key: str, quota: Quota, seconds: float, why: str) -> float:
        """See Pauses.pause."""
        return self._pauses.pause(key, quota, seconds, why)

    async def resume(self, key: str) -> bool:
        """See Pauses.resume."""
        return self._pauses.resume(key)
