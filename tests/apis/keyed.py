"""Keyed concurrency limiters whose periods a test ends."""

from typing import Any

from batchlimit.concurrency import KeyedConcurrencyLimiter
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
