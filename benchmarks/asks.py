"""What a call costs that has to ask the store, beside a bare PING; and what the server works for it, beside less."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count, repeat

import redis

from batchlimit import Quota, RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.bucket.messages import Ask
from batchlimit.stores.client.scripts import bucket_name, script, take_arguments
from benchmarks.floor import TIMED, timed
from benchmarks.rivals import Take
from benchmarks.rivals.store import SCRIPT, arguments

PING = "PING"
PLAIN = "a plain bucket's script"
_QUOTA = Quota.parse("10_000_000/s burst 10_000_000")


@contextmanager
def misses(url: str) -> Iterator[dict[str, TIMED]]:
    """Yield a PING, and a call of the limiter that leases no token ahead: each is one ask."""
    name = f"bench-{secrets.token_hex(4)}"
    with (
        closing(redis.Redis.from_url(url)) as client,
        RateLimiter.from_url(url, _QUOTA, prefix=name, sizer=FixedBatch(1), deadline=1.0) as limiter,
    ):
        yield {
            PING: timed("client.ping()", client=client),
            "a miss": timed("limiter.try_acquire('cold')", limiter=limiter),
        }


@contextmanager
def scripts(url: str) -> Iterator[dict[str, TIMED]]:
    """Yield the plain bucket's script and ours: by the server's own account, and sent together, so that it is warm."""
    name, seqs = f"bench-{secrets.token_hex(4)}", count(1)
    plain: list[str | bytes | int] = [bucket_name(name, "plain"), *arguments(_QUOTA, Take(1, whole=True))]

    def ours() -> list[str | bytes | int]:
        ask = Ask("guard", next(seqs), need=1, queued=1, want=1)
        return [bucket_name(name, "take"), *take_arguments(_QUOTA, ask)]

    with closing(redis.Redis.from_url(url)) as client:
        yield {
            PLAIN: _served(client, SCRIPT, lambda: plain),
            "take.lua": _served(client, script("take"), ours),
        }


def _served(client: "redis.Redis", lua: str, call: Callable[[], list[str | bytes | int]]) -> TIMED:
    """Time a script by what the server says that it took, without what it reads, writes and waits."""
    digest = str(client.script_load(lua))

    def seconds(calls: int) -> float:
        pipeline = client.pipeline(transaction=False)
        for _ in repeat(None, calls):
            pipeline.evalsha(digest, 1, *call())
        before = _microseconds(client)
        pipeline.execute()
        return (_microseconds(client) - before) / 1e6

    return seconds


def _microseconds(client: "redis.Redis") -> int:
    told = client.info("commandstats")
    return int(told.get("cmdstat_evalsha", {"usec": 0})["usec"])
