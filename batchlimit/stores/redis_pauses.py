"""The pauses of keys that lie in Redis or Valkey under one prefix, for threads and for tasks."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from batchlimit.quota.quota import Quota
from batchlimit.stores.client.scripts import PROBE_QUOTA, bucket_name, pause_arguments

_SECOND = 1_000_000
_NONE = -1
"""What pause.lua says where there was no pause to lift."""


class RedisPauses:
    """The pauses under one prefix; see lua/pause.lua."""

    __slots__ = ("_prefix", "_run")

    def __init__(self, run: Callable[[str, str, Sequence[str | bytes]], Sequence[Any]], prefix: str) -> None:
        self._run, self._prefix = run, prefix

    def pause(self, key: str, quota: Quota, seconds: float, why: str) -> float:
        """See Pauses.pause."""
        reply = self._run("pause", bucket_name(self._prefix, key), pause_arguments(quota, seconds, why))
        return int(reply[0]) / _SECOND

    def resume(self, key: str) -> bool:
        """See Pauses.resume."""
        reply = self._run("pause", bucket_name(self._prefix, key), pause_arguments(PROBE_QUOTA, 0, ""))
        return int(reply[0]) != _NONE


class AsyncRedisPauses:
    """See RedisPauses."""

    __slots__ = ("_prefix", "_run")

    def __init__(self, run: Callable[[str, str, Sequence[str | bytes]], Awaitable[Sequence[Any]]], prefix: str) -> None:
        self._run, self._prefix = run, prefix

    async def pause(self, key: str, quota: Quota, seconds: float, why: str) -> float:
        """See Pauses.pause."""
        reply = await self._run("pause", bucket_name(self._prefix, key), pause_arguments(quota, seconds, why))
        return int(reply[0]) / _SECOND

    async def resume(self, key: str) -> bool:
        """See Pauses.resume."""
        reply = await self._run("pause", bucket_name(self._prefix, key), pause_arguments(PROBE_QUOTA, 0, ""))
        return int(reply[0]) != _NONE
