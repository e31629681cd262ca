"""A client that comes again when it was told to: how long it was told to wait, and how long it really waited."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import cycle, repeat
from typing import NamedTuple

from batchlimit import Quota, RateLimiter
from tests.simulation.agenda import SECOND, Agenda
from tests.simulation.instance import Witness
from tests.simulation.limiter import Limiter
from tests.simulation.network import Post, undisturbed
from tests.simulation.server import Server

POLLED = ("5/minute", "1/s burst 1", "10/s burst 2")
AMISS = 0.05
"""A client may wait so much longer, or less long, than it was told at first; in parts of that."""
_ROUNDS = 20


class Waits(NamedTuple):
    """Of one client, each time that it was refused: what it was told at first, and when it was admitted (s)."""

    told: list[float]
    real: list[float]

    @property
    def ratio(self) -> float:
        """Real over told."""
        return sum(self.real) / sum(self.told)


def simulated(quota: str, instances: int, *, wanders: bool) -> Waits:
    """Have a client poll in virtual time; it goes to the next instance each time, or stays at one."""
    agenda = Agenda()
    server, post = Server(agenda), Post(agenda, undisturbed(0.001), timeout=1.0)
    each = [Limiter(f"instance-{n}", Quota.parse(quota), agenda, server, post, Witness()) for n in range(instances)]
    client = _Client(agenda, cycle(each) if wanders else repeat(each[0]))
    client.call()
    while len(client.waits.real) < _ROUNDS:
        agenda.next_before(agenda.now + 3600 * SECOND)
    return client.waits


class _Client:
    def __init__(self, agenda: Agenda, limiters: Iterator[Limiter]) -> None:
        self.waits = Waits([], [])
        self._agenda, self._limiters, self._refused_at = agenda, limiters, -1

    def call(self) -> None:
        next(self._limiters).decide(self._answer)

    def _answer(self, wait: float) -> None:
        now = self._agenda.now
        if wait and self._refused_at < 0:
            self._refused_at = now
            self.waits.told.append(wait)
        elif not wait and self._refused_at >= 0:
            self.waits.real.append((now - self._refused_at) / SECOND)
            self._refused_at = -1
        self._agenda.after(wait, self.call)


def really(url: str, quota: str, instances: int, seconds: float, prefix: str) -> dict[str, Waits]:
    """Have two clients poll for so long, one that stays and one that wanders, at keys of their own."""
    with ExitStack() as stack:
        each = [
            stack.enter_context(RateLimiter.from_url(url, quota, prefix=prefix, deadline=1.0)) for _ in range(instances)
        ]
        found = {"stays": Waits([], []), "wanders": Waits([], [])}
        ends = time.monotonic() + seconds
        clients = [
            threading.Thread(target=_poll, args=(name, each if name == "wanders" else each[:1], ends, waits))
            for name, waits in found.items()
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
    return found


def _poll(key: str, limiters: Sequence[RateLimiter], ends: float, waits: Waits) -> None:
    refused_at, ways = -1.0, cycle(limiters)
    while (now := time.monotonic()) < ends or refused_at >= 0.0:
        decision = next(ways).decide(key)
        if not decision and refused_at < 0.0:
            refused_at = time.monotonic()
            waits.told.append(decision.retry_after)
        elif decision and refused_at >= 0.0:
            waits.real.append(now - refused_at)
            refused_at = -1.0
        time.sleep(decision.retry_after)
