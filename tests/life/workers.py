"""What runs in processes that multiprocessing starts: it imports what it calls by name."""

from multiprocessing.connection import Connection

from batchlimit import RateLimiter
from batchlimit.reservoir import requests
from tests.distance import far
from tests.sync.stage import spend


def spend_all(url: str, prefix: str, key: str, answer: Connection) -> None:
    """Make a limiter of this process's own, try until refused, and tell how often it was not."""
    requests.Ask = far  # type: ignore[assignment,attr-defined]
    with RateLimiter.from_url(url, "0.001/s burst 1000", prefix=prefix, connect_timeout=30.0, deadline=30.0) as limiter:
        spent = spend(limiter, key)
    answer.send(spent)
