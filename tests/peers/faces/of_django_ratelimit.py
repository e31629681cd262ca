"""The cache that `django_ratelimit` counts in, and its windows, over a limiter of ours: a plugin of pytest.

Its keys, rates and decorators stay its own. A cache whose name tells of errors is a Redis that nobody serves.
"""

import itertools
from os import environ
from typing import Any

import django
from django.conf import settings
from django.core.cache import caches

from batchlimit import Quota, RateLimiter
from batchlimit.errors import StoreUnavailable

NOBODY = "redis://127.0.0.1:9/0"
LOCAL = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
NAMES = ("default", "connection-errors", "connection-errors-redis", "instant-expiration")

settings.configure(
    CACHES=dict.fromkeys(NAMES, LOCAL),
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
)
django.setup()

from django_ratelimit import core  # type: ignore[import-untyped] # noqa: E402  it reads the settings

QUOTAS: dict[str, Quota] = {}


class Counting:
    """What a cache does for them: it counts what was asked of a key, and no further than one above the limit."""

    def __init__(self, url: str) -> None:
        self._url, self._numbers = url, itertools.count()
        self.clear()

    def clear(self) -> None:
        """Begin anew, in other buckets."""
        prefix = f"peers-{id(self)}-{next(self._numbers)}"
        self._limiter = RateLimiter.from_url(self._url, QUOTAS.__getitem__, prefix=prefix, deadline=10.0)

    def add(self, key: str, initial: int, timeout: int) -> bool:
        """Return that the key was there, so that it is asked for next."""
        return False

    def incr(self, key: str) -> int:
        """Charge one."""
        try:
            decision = self._limiter.decide(key)
        except StoreUnavailable as error:
            raise ValueError(key) from error
        return QUOTAS[key].burst + 1 if not decision else QUOTAS[key].burst - decision.remaining

    def get(self, key: str, default: int) -> int | None:
        """Charge nothing."""
        try:
            return QUOTAS[key].burst - self._limiter.peek(key).remaining
        except StoreUnavailable:
            return None


class Caches:
    """Ours by the names of theirs."""

    def __init__(self) -> None:
        self._made: dict[str, Counting] = {}

    def __getitem__(self, name: str) -> Counting:
        caches[name]  # the error for a name that there is not
        url = NOBODY if "errors" in name else environ["PEERS_REDIS"]
        return self._made.setdefault(name, self._made.get(name) or Counting(url))


def key_of(group: str, window: int, rate: Any, value: str, methods: Any) -> str:
    """Return a key without a window, and remember its quota."""
    count, seconds = core._split_rate(rate)
    key: str = MAKE(group, 0, rate, value, methods)
    QUOTAS[key] = Quota(count / seconds, count)
    return key


MAKE = core._make_cache_key
core._make_cache_key, core.caches = key_of, Caches()
caches["default"].clear = core.caches["default"].clear
