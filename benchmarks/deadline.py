"""Which part of the calls fails where the server is far away and the deadline is too short for that.

Eight threads call the store all the time, over a relay of a steady round trip; each case in turn, several rounds. What
counts beside the round trip is how late the machine is: run it on one that is as busy as yours.
"""

import argparse
import logging
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

# Run as a file, Python looks beside it; what it needs lies in the checkout around it.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from batchlimit import RateLimiter, Statistics, StoreUnavailable
from batchlimit.stores.embedded import EmbeddedServer
from benchmarks.figures import Figure, report
from tests.relay import Relay

_CASES = ((0.02, 0.05), (0.02, 0.1), (0.04, 0.05), (0.04, 0.08), (0.04, 0.1), (0.04, 0.2))
"""(round trip, deadline), in seconds."""
_SECONDS = 4.0
_THREADS = 8


def figures(rounds: int) -> Iterator[Figure]:
    """Yield what part of the calls failed, by case, and how often the store was given up for it."""
    server = EmbeddedServer()
    try:
        found = [[_measured(server.url, *case) for case in _CASES] for _ in range(rounds)]
    finally:
        server.close()
    for (trip, deadline), told in zip(_CASES, zip(*found, strict=True), strict=True):
        calls, failed = sum(each[0] for each in told), sum(each[1] for each in told)
        note = f"of {calls:,} calls; {sum(each[2].outages for each in told)} outages"
        case = f"{trip * 1e3:.0f} ms away, deadline {deadline * 1e3:.0f} ms"
        yield Figure(case, 100 * failed / calls, "%", note=note)


def _measured(url: str, trip: float, deadline: float) -> tuple[int, int, Statistics]:
    calls, failures = [0] * _THREADS, [0] * _THREADS
    with Relay(url, trip) as relay, RateLimiter.from_url(relay.url, "1000/s", deadline=deadline) as limiter:
        until = time.monotonic() + _SECONDS

        def work(thread: int) -> None:
            while time.monotonic() < until:
                calls[thread] += 1
                try:
                    limiter.peek(f"key {thread}")
                except StoreUnavailable:
                    failures[thread] += 1
                    time.sleep(trip / 2)  # who is refused at once must not count more often for it

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(_THREADS)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return sum(calls), sum(failures), limiter.statistics()


def main() -> None:
    """Print one figure a line."""
    logging.getLogger("batchlimit").setLevel(logging.ERROR)  # each limiter says that its store is away
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    report(figures(arguments.rounds), as_document=arguments.json)


if __name__ == "__main__":
    main()
