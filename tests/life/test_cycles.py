"""Many limiters that come and go leave no thread and no open file behind, however they went."""

import sys

import pytest

from tests.depth import depth
from tests.servers import Server
from tests.sync.stage import said

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts by /proc")

_MANY = depth(50, 1000)
_LOOPS = depth(20, 300)
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
HEAD = "\n".join("    " + line for line in COUNT.splitlines())


@pytest.mark.parametrize("end", ["limiter.close(); kept.append(limiter)", "del limiter"])
def test_many_limiters_of_threads(valkey: Server, prefix: str, end: str) -> None:
    """Those that were closed are kept: it is not the garbage collector that ends them."""
    program = f"""
{HEAD}
    def cycle(i):
        limiter = RateLimiter.from_url(URL, "100/s", prefix=PREFIX, connect_timeout=30.0, deadline=30.0)
        assert limiter.try_acquire(f"key-{{i}}")
        {end}

    for i in range(20):
        cycle(i)
    before = count()
    for i in range({_MANY}):
        cycle(i)
    say(*settled((max(2, before[0]), before[1])))
    """
    assert said(program, valkey.url, prefix)[0].startswith("True")


@pytest.mark.parametrize("end", ["await limiter.close(); kept.append(limiter)", "del limiter"])
def test_many_loops_with_a_limiter_each(valkey: Server, prefix: str, end: str) -> None:
    program = f"""
{HEAD}
    import asyncio
    async def cycle(i):
        limiter = AsyncRateLimiter.from_url(URL, "100/s", prefix=PREFIX, connect_timeout=30.0, deadline=30.0)
        assert await limiter.try_acquire(f"key-{{i}}")
        {end}

    for i in range(20):
        asyncio.run(cycle(i))
    before = count()
    for i in range({_MANY}):
        asyncio.run(cycle(i))
    say(*settled(before))
    """
    assert said(program, valkey.url, prefix, logs=False)[0].startswith("True")


def test_a_limiter_that_goes_from_loop_to_loop(valkey: Server, prefix: str) -> None:
    program = f"""
{HEAD}
    import asyncio
    limiter = AsyncRateLimiter.from_url(URL, "100/s", prefix=PREFIX, connect_timeout=30.0, deadline=30.0)
    async def cycle(i):
        assert await limiter.try_acquire(f"key-{{i}}")

    for i in range(20):
        asyncio.run(cycle(i))
    before = count()
    for i in range({_LOOPS}):
        asyncio.run(cycle(i))
    say(*settled(before))
    """
    assert said(program, valkey.url, prefix, logs=False)[0].startswith("True")
