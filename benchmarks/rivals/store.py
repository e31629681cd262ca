"""The plain bucket in a real server: one script, one round trip a request."""

from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from batchlimit import Quota, StoreUnavailable
from benchmarks.rivals.request import Request, Take, Tell

SCRIPT = Path(__file__).with_name("bucket.lua").read_text(encoding="utf-8")
_TIMEOUT = 1.0  # seconds, as the limiter of this package waits


class PlainStore:
    """One plain bucket in the server at `url`, under `name`; a quota of several bandwidths it cannot keep."""

    def __init__(self, url: str, name: str, quota: Quota) -> None:
        if quota.also:
            raise ValueError(f"a plain bucket has one bandwidth, not {quota}")
        self._name, self._quota = name, quota
        self._client = redis.Redis.from_url(
            url, socket_timeout=_TIMEOUT, socket_connect_timeout=_TIMEOUT, retry=Retry(NoBackoff(), 0)
        )
        self._script: Any = self._client.register_script(SCRIPT)

    def ask(self, request: Request) -> int:
        """Answer one request; StoreUnavailable if there is no answer."""
        try:
            return int(self._script(keys=[self._name], args=arguments(self._quota, request)))
        except (redis.RedisError, OSError) as error:
            raise StoreUnavailable(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Close its connections."""
        self._client.close()


def arguments(quota: Quota, request: Request) -> list[str | int]:
    """Return ARGV of bucket.lua."""
    match request:
        case Take(tokens, whole):
            return [repr(quota.rate), quota.burst, "whole" if whole else "part", tokens]
        case Tell(spent):
            return [repr(quota.rate), quota.burst, "tell", spent]
