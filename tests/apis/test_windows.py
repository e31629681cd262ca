"""`100 within 1m` holds over a fleet in every window, wherever it begins."""

import random

import pytest

from batchlimit import RateLimiter
from batchlimit.quota.quota import Quota
from batchlimit.stores import MemoryStore
from tests.depth import depth
from tests.sync.stage import Clock

_INSTANCES = 8


@pytest.mark.usefixtures("without_refresher")
@pytest.mark.parametrize("seed", range(depth(3, 20)))
@pytest.mark.parametrize("text", ["100 within 1m", "100 within 1m burst 50", "5 within 1m", "400 within 1s burst 200"])
def test_no_window_holds_more(text: str, seed: int) -> None:
    """After a lull calls come alone and in crowds, to one instance and another; some ask for several tokens."""
    chance, clock, quota = random.Random(seed), Clock(), Quota.parse(text)
    n, per = int(text.split()[0]), 1.0 if "1s" in text else 60.0
    store = MemoryStore(clock)
    fleet = [RateLimiter(store, quota, clock=clock) for _ in range(_INSTANCES)]
    admitted: list[tuple[float, int]] = []
    for _ in range(2):
        clock.pass_by(2 * quota.burst / quota.rate)
        for _ in range(24 * n):
            clock.pass_by(chance.choice([0.0, 0.0, 0.4 * per / n * chance.random()]))
            cost = chance.choice([1, 1, 1, min(3, quota.burst)])
            if chance.choice(fleet).try_acquire("key", cost):
                admitted.append((clock(), cost))
    most = begin = total = 0
    for at, cost in admitted:
        total += cost
        while admitted[begin][0] < at - per:
            total -= admitted[begin][1]
            begin += 1
        most = max(most, total)
    assert most <= n
    assert most >= 0.8 * n, "and it was put to the test"
    for limiter in fleet:
        limiter.close()
