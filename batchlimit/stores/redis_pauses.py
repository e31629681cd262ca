"""The pauses of keys that lie in Redis or Valkey under one prefix."""

from collections.abc import Callable
from typing import Any

from batchlimit.quota.quota import Quota
from batchlimit.stores.base_redis import first
from batchlimit.stores.client.scripts import PROBE_QUOTA, bucket_name, pause_arguments

_SECOND = 1_000_000
_NONE = -1
"""What pause.lua says where there was no pause to lift."""


class RedisPauses:
    """The pauses under one prefix; see lua/pause.lua. Its methods are called or awaited, as `run` is."""

    __slots__ = ("_prefix", "_run")

    def __init__(self, run: Callable[..., Any], prefix: str) -> None:
        """`run` takes a script's name, a bucket's, arguments, and what reads the reply."""
        self._run, self._prefix = run, prefix

    def pause(self, key: str, quota: Quota, seconds: float, why: str) -> Any:
        """See Pauses.pause."""
        arguments = pause_arguments(quota, seconds, why)
        return self._run("pause", bucket_name(self._prefix, key), arguments, lambda reply: first(reply) / _SECOND)

    def resume(self, key: str) -> Any:
        """See Pauses.resume."""
        arguments = pause_arguments(PROBE_QUOTA, 0, "")
        return self._run("pause", bucket_name(self._prefix, key), arguments, lambda reply: first(reply) != _NONE)
