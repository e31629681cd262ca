"""What is behind an application of the matrix: its limiter, and what a test may ask of it, line by line."""

import asyncio
import sys
import threading
from typing import Any

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.reservoir import requests
from batchlimit.rules import Rule, Rules
from batchlimit.stores import MemoryStore
from tests.distance import far
from tests.sync.stage import Clock

VIRTUAL = "virtual"
"""In place of a URL: buckets in memory, in a time that the test sets."""


class Backing:
    """Makes the limiter when its application asks for it, and obeys `pass SECONDS` and `left KEY` on standard input."""

    def __init__(self, url: str, prefix: str, rules: list[Rule]) -> None:
        self._url, self._prefix, self._rules = url, prefix, Rules(rules)
        self._clock = Clock()
        self._limiter: Any = None
        self._loop: Any = None

    def open(self) -> RateLimiter:
        """Make the limiter of an application on threads."""
        made: RateLimiter = self._made(RateLimiter)
        self._limiter = made
        return made

    def open_async(self) -> AsyncRateLimiter:
        """Make the limiter of an application on asyncio, on its loop."""
        self._loop = asyncio.get_running_loop()
        made: AsyncRateLimiter = self._made(AsyncRateLimiter)
        self._limiter = made
        return made

    def obey(self) -> None:
        """Do what is asked on standard input, in a thread; it ends with the process."""
        threading.Thread(target=self._obey, daemon=True).start()

    def _made(self, limiter: Any) -> Any:
        if self._url == VIRTUAL:
            clock = self._clock
            return limiter(MemoryStore(clock), self._rules.quotas, clock=clock, sizer=FixedBatch(1))
        setattr(requests, "Ask", far)  # noqa: B010
        options = {"prefix": self._prefix, "sizer": FixedBatch(1), "deadline": 30.0, "connect_timeout": 30.0}
        return limiter.from_url(self._url, self._rules.quotas, on_failure=self._rules.on_failure, **options)

    def _obey(self) -> None:
        with open(0, "rb", buffering=0, closefd=False) as asked:  # no lock that the end of the process would wait for
            for line in iter(asked.readline, b""):
                word, value = line.decode().split()
                sys.stdout.write(f"{self._done(word, value)}\n")
                sys.stdout.flush()

    def _done(self, word: str, value: str) -> int:
        if word == "pass":
            self._clock.pass_by(float(value))
            return 0
        return int(self._peeked(value).remaining)

    def _peeked(self, key: str) -> Any:
        found = self._limiter.peek(key)
        return found if self._loop is None else asyncio.run_coroutine_threadsafe(found, self._loop).result()
