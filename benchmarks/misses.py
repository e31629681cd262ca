"""What a miss costs: every call asks the store, beside redis-py that runs a plain token bucket by EVALSHA.

A batch of one token and a quota that never runs dry, so each `try_acquire` is a take of its own; where several wait at
one key, one take is for all of them. The server is a real Valkey of this program's own, on the same machine. All that
is compared goes in turn, round by round.
"""

import argparse
import asyncio
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

# Run as a file, Python looks beside it; what it needs lies in the checkout around it.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import redis
import redis.asyncio

from batchlimit import AsyncRateLimiter, FixedBatch, Quota, RateLimiter
from batchlimit.core.lease import Ask
from batchlimit.stores.scripts import script
from batchlimit.stores.server import EmbeddedServer
from batchlimit.stores.wire import take_arguments
from benchmarks.figures import Figure, as_json, ran_on
from benchmarks.heartbeat import Laps
from benchmarks.rivals.store import SCRIPT

_QUOTA = Quota(1e7, 10_000_000)
_CALLS = 800
"""How many calls all threads or tasks make together in one timing."""
_NAMES = "redis-py", "redis-py, our script", "try_acquire"
_COLD = 100
_CROWD = 64

_seqs = count(1)

Call = Callable[[str], object]
AsyncCall = Callable[[str], Awaitable[object]]
Timing = Callable[[], float]


def threads(url: str, rounds: int) -> Iterator[Figure]:
    """One thread; 8 threads, each at a key of its own; 8 threads at one key."""
    with ExitStack() as stack:
        client: Any = stack.enter_context(redis.Redis.from_url(url))
        limiter = stack.enter_context(RateLimiter.from_url(url, _QUOTA, sizer=FixedBatch(1), deadline=1.0))
        evalsha, ours = (partial(client.evalsha, client.script_load(text), 1) for text in (SCRIPT, script("take")))
        calls = partial(_plain, evalsha), partial(_scripted, ours), limiter.try_acquire
        for name, keys in _crews(8):
            yield from _compared(f"threads: {name}", [partial(_crew, call, keys) for call in calls], rounds)
        yield Figure("threads: store calls an admission", _calls_per_admission(limiter), note="8 at one key combine")


def _crews(many: int) -> Iterator[tuple[str, Sequence[str]]]:
    """Who calls: the key of each thread or task."""
    yield "1", ["key"]
    yield f"{many}, each at its own key", [f"key-{n}" for n in range(many)]
    yield f"{many} at one key", ["one"] * many


def _plain(evalsha: Callable[..., Any], key: str) -> Any:
    return evalsha(f"plain:{key}", _QUOTA.rate, _QUOTA.burst, "whole", 1)


def _scripted(evalsha: Callable[..., Any], key: str) -> Any:
    """What our script takes of the server, by the same client: the rest of the difference is Python's."""
    return evalsha(f"{{ours:{key}}}", *take_arguments(_QUOTA, Ask("bench", next(_seqs), need=1, queued=1, want=1)))


def _crew(call: Call, keys: Sequence[str]) -> float:
    """Return the calls a second of so many threads."""
    barrier = threading.Barrier(len(keys) + 1)
    crew = [threading.Thread(target=_work, args=(call, key, _CALLS // len(keys), barrier)) for key in keys]
    for each in crew:
        each.start()
    barrier.wait()
    begun = time.perf_counter()
    for each in crew:
        each.join()
    return _CALLS / (time.perf_counter() - begun)


def _work(call: Call, key: str, calls: int, barrier: threading.Barrier) -> None:
    call(key)  # whoever comes first connects
    barrier.wait()
    for _ in range(calls):
        call(key)


def tasks(url: str, rounds: int) -> Iterator[Figure]:
    """One task; 64 tasks, each at a key of its own; 64 tasks at one key; and 100 keys that nobody asked for before."""
    laps = Laps()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(laps)) as runner:
        client: Any = redis.asyncio.Redis.from_url(url)
        limiter = AsyncRateLimiter.from_url(url, _QUOTA, sizer=FixedBatch(1), deadline=1.0)
        shas = [runner.run(client.script_load(text)) for text in (SCRIPT, script("take"))]
        evalsha, ours = (partial(client.evalsha, sha, 1) for sha in shas)
        calls: list[AsyncCall] = [partial(_plain, evalsha), partial(_scripted, ours), limiter.try_acquire]
        for name, keys in _crews(_CROWD):
            timings = [partial(_run, runner, _await_crew, call, keys) for call in calls]
            yield from _compared(f"tasks: {name}", timings, rounds)
        yield from _cold(runner, laps, calls, rounds)
        runner.run(limiter.close())
        runner.run(client.aclose())


def _run(runner: asyncio.Runner, timing: Callable[..., Coroutine[Any, Any, float]], *arguments: Any) -> float:
    return runner.run(timing(*arguments))


async def _await_crew(call: AsyncCall, keys: Sequence[str]) -> float:
    await asyncio.gather(*(call(key) for key in keys))  # whoever comes first connects
    begun = time.perf_counter()
    await asyncio.gather(*(_repeat(call, key, _CALLS // len(keys)) for key in keys))
    return _CALLS / (time.perf_counter() - begun)


async def _repeat(call: AsyncCall, key: str, calls: int) -> None:
    for _ in range(calls):
        await call(key)


def _cold(runner: asyncio.Runner, laps: Laps, calls: Sequence[AsyncCall], rounds: int) -> Iterator[Figure]:
    """So many tasks that miss as many keys in one turn of the loop."""
    seen: list[list[float]] = [[] for _ in calls]
    timings = [partial(_run, runner, _await_cold, call, laps, each) for call, each in zip(calls, seen, strict=True)]
    yield from _compared(f"tasks: {_COLD} cold keys at once", timings, rounds)
    for name, each in zip(_NAMES, seen, strict=True):
        yield Figure(f"tasks: {_COLD} cold keys, longest lap: {name}", 1000 * statistics.median(each), "ms")


async def _await_cold(call: AsyncCall, laps: Laps, longest: list[float]) -> float:
    keys = [f"cold-{time.monotonic_ns()}-{n}" for n in range(_COLD)]
    await asyncio.sleep(0)
    laps.take()
    begun = time.perf_counter()
    await asyncio.gather(*(asyncio.create_task(_repeat(call, key, 1)) for key in keys))
    taken = time.perf_counter() - begun
    longest.append(max(laps.take()))
    return _COLD / taken


def connections(url: str) -> Iterator[Figure]:
    """How many connections 64 threads or tasks open, at as many keys and at one."""
    for name, keys in list(_crews(_CROWD))[1:]:
        with RateLimiter.from_url(f"{url}?client_name=threads", _QUOTA, sizer=FixedBatch(1), deadline=1.0) as limiter:
            _crew(limiter.try_acquire, keys)
            yield Figure(f"connections: threads: {name}", _connected(url, "threads"))
        yield Figure(f"connections: tasks: {name}", asyncio.run(_opened(url, keys)))


async def _opened(url: str, keys: Sequence[str]) -> int:
    named = f"{url}?client_name=tasks"
    async with AsyncRateLimiter.from_url(named, _QUOTA, sizer=FixedBatch(1), deadline=1.0) as limiter:
        await _await_crew(limiter.try_acquire, keys)
        return await asyncio.to_thread(_connected, url, "tasks")


def _connected(url: str, name: str) -> int:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return sum(each["name"] == name for each in client.client_list())


def _compared(name: str, timings: Sequence[Timing], rounds: int) -> Iterator[Figure]:
    """The calls a second of each, in turn, and how many times those of redis-py ours are."""
    rows = [[timing() for timing in timings] for _ in range(rounds)]
    note = f"median of {rounds} rounds, in turn"
    for what, column in zip(_NAMES, zip(*rows, strict=True), strict=True):
        yield Figure(f"{name}: {what}", statistics.median(column), "/s", note=note)
        note = ""
    ratio = statistics.median(ours / plain for plain, _, ours in rows)
    yield Figure(f"{name}: ratio", ratio, at_least=0.9, note="median of the rounds' ratios")
    scripted = statistics.median(ours / scripted for _, scripted, ours in rows)
    yield Figure(f"{name}: ratio, the script being ours", scripted)


def _calls_per_admission(limiter: RateLimiter) -> float:
    statistics = limiter.statistics()
    return statistics.calls / statistics.admitted


def main() -> None:
    """Print one figure a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", choices=("threads", "tasks", "connections"))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    parts: dict[str, Callable[[str], Iterator[Figure]]] = {
        "threads": partial(threads, rounds=arguments.rounds),
        "tasks": partial(tasks, rounds=arguments.rounds),
        "connections": connections,
    }
    with closing(EmbeddedServer()) as server:
        chosen = [parts[arguments.only]] if arguments.only else list(parts.values())
        figures = [figure for part in chosen for figure in part(server.url)]
    if arguments.json:
        print(as_json(figures))
        return
    print(ran_on())
    for figure in figures:
        print(figure)


if __name__ == "__main__":
    main()
