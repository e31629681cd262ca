"""What a miss costs: every call asks the store, beside redis-py that runs a plain token bucket by EVALSHA.

A batch of one token and a quota that never runs dry, so each `try_acquire` is a take of its own; where several wait at
one key, one take is for all of them. The server is a real Valkey of this program's own, on the same machine. All that
is compared goes in turn, round by round. That redis-py runs our script, too, tells the script's part from Python's.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

# Run as a file, Python looks beside it; what it needs lies in the checkout around it.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import redis
import redis.asyncio

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.stores import RedisStore
from batchlimit.stores.client.scripts import script
from batchlimit.stores.embedded import EmbeddedServer
from benchmarks.crews import COLD, QUOTA, AsyncCall, ask, crews, plain, run_cold, run_tasks, run_threads, scripted
from benchmarks.figures import Figure, report
from benchmarks.heartbeat import Laps
from tests.relay import Relay

_NAMES = "redis-py", "redis-py, our script", "try_acquire"
_SCRIPTS = (Path(__file__).parent / "rivals" / "bucket.lua").read_text(encoding="utf-8"), script("take")
_CROWD = 64
_DUE = 32
_AWAY = 0.001


def threads(url: str, rounds: int) -> Iterator[Figure]:
    """One thread; 8 threads, each at a key of its own; 8 threads at one key."""
    with ExitStack() as stack:
        client: Any = stack.enter_context(redis.Redis.from_url(url))
        limiter = stack.enter_context(RateLimiter.from_url(url, QUOTA, sizer=FixedBatch(1), deadline=1.0))
        simple, ours = (partial(client.evalsha, client.script_load(text), 1) for text in _SCRIPTS)
        calls = partial(plain, simple), partial(scripted, ours), limiter.try_acquire
        for name, keys in crews(8):
            yield from _compared(f"threads: {name}", [partial(run_threads, call, keys) for call in calls], rounds)


def tasks(url: str, rounds: int) -> Iterator[Figure]:
    """One task; 64 tasks, each at a key of its own; 64 tasks at one key; and 100 keys that nobody asked for before."""
    laps = Laps()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(laps)) as runner:
        client: Any = redis.asyncio.Redis.from_url(url)
        limiter = AsyncRateLimiter.from_url(url, QUOTA, sizer=FixedBatch(1), deadline=1.0)
        shas = [runner.run(client.script_load(text)) for text in _SCRIPTS]
        simple, ours = (partial(client.evalsha, sha, 1) for sha in shas)
        calls: list[AsyncCall] = [partial(plain, simple), partial(scripted, ours), limiter.try_acquire]
        for name, keys in crews(_CROWD):
            timings = [partial(_run, runner, run_tasks, call, keys) for call in calls]
            yield from _compared(f"tasks: {name}", timings, rounds)
        yield from _cold(runner, laps, calls, rounds)
        runner.run(limiter.close())
        runner.run(client.aclose())


def _run(runner: asyncio.Runner, timing: Callable[..., Coroutine[Any, Any, float]], *arguments: Any) -> float:
    return runner.run(timing(*arguments))


def _cold(runner: asyncio.Runner, laps: Laps, calls: Sequence[AsyncCall], rounds: int) -> Iterator[Figure]:
    """So many tasks that miss as many keys in one turn of the loop."""
    seen: list[list[float]] = [[] for _ in calls]
    timings = [partial(_run, runner, run_cold, call, laps, each) for call, each in zip(calls, seen, strict=True)]
    yield from _compared(f"tasks: {COLD} cold keys at once", timings, rounds)
    for name, each in zip(_NAMES, seen, strict=True):
        yield Figure(f"tasks: {COLD} cold keys, longest lap: {name}", 1000 * statistics.median(each), "ms")


def _compared(name: str, timings: Sequence[Callable[[], float]], rounds: int) -> Iterator[Figure]:
    """The calls a second of each, in turn, and how many times those of redis-py ours are."""
    rows = [[timing() for timing in timings] for _ in range(rounds)]
    note = f"median of {rounds} rounds, in turn"
    for what, column in zip(_NAMES, zip(*rows, strict=True), strict=True):
        yield Figure(f"{name}: {what}", statistics.median(column), "/s", note=note)
        note = ""
    ratio = statistics.median(ours / simple for simple, _, ours in rows)
    yield Figure(f"{name}: ratio", ratio, at_least=0.9, note="median of the rounds' ratios")
    same = statistics.median(ours / same for _, same, ours in rows)
    yield Figure(f"{name}: ratio, the script being ours", same)


def together(url: str, rounds: int) -> Iterator[Figure]:
    """What the keeper does where many keys are due at once: one round trip for all, instead of one for each."""
    with Relay(url, _AWAY) as relay:
        for name, at in (("this server", url), (f"{1000 * _AWAY:g} ms away", relay.url)):
            with closing(RedisStore.from_url(at, deadline=1.0)) as store:
                rows = [(_timed(_each, store), _timed(_at_once, store)) for _ in range(rounds)]
            each, at_once = map(statistics.median, zip(*rows, strict=True))
            yield Figure(f"{_DUE} keys due, {name}: one after the other", each, "us", note="a key, in a thread")
            yield Figure(f"{_DUE} keys due, {name}: together", at_once, "us")
            ratio = statistics.median(before / after for before, after in rows)
            yield Figure(f"{_DUE} keys due, {name}: ratio", ratio, note="median of the rounds' ratios")


def _timed(take: Callable[[RedisStore], object], store: RedisStore) -> float:
    """Microseconds a key."""
    begun = time.perf_counter()
    take(store)
    return (time.perf_counter() - begun) / _DUE * 1e6


def _each(store: RedisStore) -> None:
    for n in range(_DUE):
        store.take(f"due-{n}", QUOTA, ask())


def _at_once(store: RedisStore) -> None:
    store.take_many([(f"due-{n}", QUOTA, ask()) for n in range(_DUE)])


def connections(url: str) -> Iterator[Figure]:
    """How many connections 64 threads or tasks open, at as many keys and at one."""
    for name, keys in list(crews(_CROWD))[1:]:
        named = f"{url}?client_name=threads"
        with RateLimiter.from_url(named, QUOTA, sizer=FixedBatch(1), deadline=1.0) as limiter:
            run_threads(limiter.try_acquire, keys)
            yield Figure(f"connections: threads: {name}", _connected(url, "threads"))
        yield Figure(f"connections: tasks: {name}", asyncio.run(_opened(url, keys)))


async def _opened(url: str, keys: Sequence[str]) -> int:
    named = f"{url}?client_name=tasks"
    async with AsyncRateLimiter.from_url(named, QUOTA, sizer=FixedBatch(1), deadline=1.0) as limiter:
        await run_tasks(limiter.try_acquire, keys)
        return await asyncio.to_thread(_connected, url, "tasks")


def _connected(url: str, name: str) -> int:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return sum(each["name"] == name for each in client.client_list())


def main() -> None:
    """Print one figure a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", choices=("threads", "tasks", "together", "connections"))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    parts: dict[str, Callable[[str], Iterator[Figure]]] = {
        "threads": partial(threads, rounds=arguments.rounds),
        "tasks": partial(tasks, rounds=arguments.rounds),
        "together": partial(together, rounds=arguments.rounds),
        "connections": connections,
    }
    with closing(EmbeddedServer()) as server:
        chosen = [parts[arguments.only]] if arguments.only else list(parts.values())
        report((figure for part in chosen for figure in part(server.url)), as_document=arguments.json)


if __name__ == "__main__":
    main()
