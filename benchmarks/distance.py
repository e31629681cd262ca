"""A server that is further away: a relay in a process of its own, so that it takes no time of whom it delays."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection

from tests.relay import Relay


@contextmanager
def distant(url: str, round_trip: float) -> Iterator[str]:
    """Yield where the server at `url` is a round trip (s) away."""
    with movable(url, round_trip) as (far, _):
        yield far


@contextmanager
def movable(url: str, round_trip: float) -> Iterator[tuple[str, Callable[[float], None]]]:
    """As `distant`; yield also what has the server another round trip (s) away from then on."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_relay, args=(theirs, url, round_trip), daemon=True)
    process.start()
    theirs.close()

    def move(round_trip: float) -> None:
        ours.send(round_trip)
        ours.recv()

    try:
        yield ours.recv(), move
    finally:
        ours.close()
        process.join()


def _relay(link: Connection, url: str, round_trip: float) -> None:
    with Relay(url, round_trip) as relay, suppress(EOFError):  # its other end is closed
        link.send(relay.url)
        while True:
            relay.hold(link.recv())
            link.send(None)
