"""Keyed concurrency limiters whose periods a test ends."""

from collections.abc import Sequence
from typing import Any

from batchlimit.concurrency import KeyedConcurrencyLimiter
from batchlimit.laws import Gitaly
from tests.awaiting import awaited


class Told:
    """A watcher that sees `event`."""

    name = "told"

    def __init__(self) -> None:
        self.event: str | Exception | None = None

    def poll(self) -> str | None:
        if isinstance(self.event, Exception):
            raise self.event
        return self.event


def round_of(limiter: Any, *events: str) -> None:
    """A period ends, in which the watchers of all keys saw this."""
    watchers = limiter._gates
    watchers.poll()
    watchers.end_period(events)


def close(limiter: Any) -> None:
    if isinstance(limiter, KeyedConcurrencyLimiter):
        limiter.close()
    else:
        awaited(limiter.close)


def gitaly() -> Gitaly:
    return Gitaly(initial=10, minimum=1, maximum=20)


def enter(limiter: Any, keys: str | Sequence[str], **options: Any) -> Any:
    """Acquire a permit of one key or of several."""
    acquire = limiter.acquire if isinstance(keys, str) else limiter.acquire_all
    permit = acquire(keys, **options)
    return permit if isinstance(limiter, KeyedConcurrencyLimiter) else awaited(lambda: permit)
