"""A server that is further away: a relay in a process of its own, so that it takes no time of whom it delays."""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from tests.relay import Relay


@contextmanager
def distant(url: str, round_trip: float) -> Iterator[str]:
    """Yield where the server at `url` is a round trip (s) away."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_relay, args=(theirs, url, round_trip), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours.recv()
    finally:
        ours.close()
        process.join()


def _relay(link: Connection, url: str, round_trip: float) -> None:
    with Relay(url, round_trip) as relay:
        link.send(relay.url)
        link.poll(None)  # until its other end is closed
