"""Many limiters that come and go leave no thread and no open file behind, however they went."""

import sys
from textwrap import indent

import pytest

from tests.depth import depth
from tests.servers import Server
from tests.sync.stage import said

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts by /proc")

COUNT = """
kept = []

def files():
    return sorted(os.readlink(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd")
                  if os.path.lexists(f"/proc/self/fd/{each}"))

def count():
    gc.collect()
    return threading.active_count(), len(files())

def settled(before):
    "Wait until no more is open than before; say how much is."
    for _ in range(3000):
        now = count()
        if now[0] <= before[0] and now[1] <= before[1]:
            return True, before, now
        threading.Event().wait(0.01)
    return False, before, now
"""

THREADS = """
def cycle(i):
    limiter = RateLimiter.from_url(URL, "100/s", prefix=PREFIX, connect_timeout=30.0, deadline=30.0)
    assert limiter.try_acquire(f"key-{i}")
    END
"""
LOOPS = """
import asyncio
limiter = None

async def task(i):
    global limiter
    limiter = limiter or AsyncRateLimiter.from_url(URL, "100/s", prefix=PREFIX, connect_timeout=30.0, deadline=30.0)
    assert await limiter.try_acquire(f"key-{i}")
    END

cycle = lambda i: asyncio.run(task(i))
"""
TWICE = """
for i in range(20):
    cycle(i)
before = count()
for i in range(MANY):
    cycle(i)
say(*settled((max(2, before[0]), before[1])))
"""


@pytest.mark.parametrize(
    ("cycle", "end", "many"),
    [
        (THREADS, "limiter.close(); kept.append(limiter)", depth(50, 1000)),  # it is not garbage that ends them
        (THREADS, "del limiter", depth(50, 1000)),
        (LOOPS, "await limiter.close(); kept.append(limiter); limiter = None", depth(50, 1000)),
        (LOOPS, "limiter = None", depth(50, 1000)),
        (LOOPS, "pass", depth(20, 300)),
    ],
    ids=["threads, closed", "threads, dropped", "loops, closed", "loops, dropped", "from loop to loop"],
)
def test_many_limiters_leave_nothing_open(valkey: Server, prefix: str, cycle: str, end: str, many: int) -> None:
    program = COUNT + cycle.replace("END", end) + TWICE.replace("MANY", str(many))
    assert said(indent(program, "    "), valkey.url, prefix, logs=cycle is THREADS)[0].startswith("True")
