"""Processes of one release of batchlimit, for a test: python member.py PATH URL PREFIX PROCESSES [later].

Each takes a token and holds a permit of a shared limit, says in a line what went wrong, and waits until its input ends.
Then it takes ten tokens, holds five permits one after the other, and says it again, and when it had the tokens. With
"later" what it writes is of the next format.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

LIMIT, TAKEN, HELD = 2, 10, 5


def say(**what: object) -> None:
    """Say what happened, in one write."""
    os.write(1, json.dumps(what).encode() + b"\n")


def raise_format() -> None:
    """Have the scripts write and read buckets of the next format, as lua/bucket.lua says that it is done."""
    from batchlimit.stores.client import scripts

    read = scripts._read
    told = {"FORMAT = '1'": "FORMAT = '2'", "'quota'": "'obeyed'", "'q'": "'o'"}

    def later(name: str) -> str:
        text = read(name)
        for now, then in told.items():
            text = text.replace(now, then)
        return text

    scripts._read = later


def take(limiter: Any, tokens: int) -> list[str]:
    """Take tokens; return what went wrong."""
    return tried(lambda: limiter.acquire("ann", timeout=60.0), tokens)


def tried(call: Callable[[], None], times: int) -> list[str]:
    """Do it so many times; return what the store could not do."""
    from batchlimit import StoreUnavailable

    try:
        for _ in range(times):
            call()
    except StoreUnavailable as error:
        return [f"{error.code}: {error}"]
    return []


def hold(url: str, prefix: str, times: int) -> list[str]:
    """Hold permits; return what went wrong."""
    import redis

    from batchlimit.shared import SharedConcurrencyLimiter

    permits = SharedConcurrencyLimiter.from_url(url, {"gpu": LIMIT}, prefix=prefix, deadline=10.0)
    with redis.Redis.from_url(url) as client, permits:

        def once() -> None:
            with permits.acquire("gpu", timeout=60.0):
                assert client.incr(prefix) <= LIMIT, "more hold a permit than may"
                client.decr(prefix)

        return tried(once, times)


def main(path: str, url: str, prefix: str, processes: str, *later: str) -> None:
    """Be so many processes."""
    sys.path.insert(0, path)
    import batchlimit

    assert batchlimit.__file__.startswith(path), batchlimit.__file__
    if later:
        raise_format()
    children: list[int] = []
    while len(children) < int(processes) - 1:
        if (child := os.fork()) == 0:
            children = []
            break
        children.append(child)
    with batchlimit.RateLimiter.from_url(url, "100/s burst 10", prefix=prefix, deadline=10.0) as limiter:
        say(first=take(limiter, 1) + hold(url, prefix, 1))
        sys.stdin.read()
        errors, at = take(limiter, TAKEN), time.monotonic()
        say(errors=errors + hold(url, prefix, HELD), at=at)
    for each in children:
        os.waitpid(each, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
