"""What a decision costs where nearly every call comes with another key, as limits by user do: a miss each.

    python benchmarks/many_keys.py [--url embedded://] [--script plain] [--keys N] [--seconds S] [--rounds N]
        [--callers N] [--json] [--all]

Processor time of one process, all of its threads counted: also what the background thread does later for a key that was
used once. Beside it redis-py runs a plain token bucket by EVALSHA; with `--script take` the limiter's own script, and
nothing around it. Each contender has a process of its own, and they take turns, because two limiters in one process
would share what they leave to the background.

Turns are short. A decision takes 35 to 190 us, as threads happen to hand each other the interpreter, and as the system
places client and server on its cores: turns of 0.1 s meet all states, of both contenders. One caller decides, unless
`--callers` says more. The ratio is that of all turns together, as `scripts/guard` takes it too.

`--all` shows decisions/s, and processor time of client and server, of every client that Python has, over keys with
equal demand and by Zipf's law. valkey-glide takes part where it is installed, and needs `--url redis://...`.
"""

import argparse
import asyncio
import random
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import accumulate, count, cycle
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

# Run as a file, Python looks beside it; what it needs lies in the checkout around it.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import redis
import redis.asyncio

from batchlimit import AsyncRateLimiter, Quota, RateLimiter
from batchlimit.stores.client import scripts
from batchlimit.stores.client.scripts import bucket_name
from batchlimit.stores.embedded import EmbeddedServer
from benchmarks.figures import Figure, report
from benchmarks.rivals.store import SCRIPT

QUOTA = Quota.parse("10/s burst 20")
AT_MOST = 1.2
KEYS, TURN, ROUNDS, CALLERS = 200_000, 0.1, 60, 1
SCRIPTS = ("plain", "take")
"""What redis-py may run: a plain token bucket, or the script of a limiter's asks."""
_DEADLINE = 1.0  # seconds: on a busy machine a call is to be late, and not to fail
Names = Iterator[str]
Run = Callable[[Connection, str, Names, int], None]
"""Decides at a server for keys of these names, by so many callers, whenever the other end of a pipe says so."""
Turn = tuple[int, float]
"""Decisions, and seconds of processor time."""


class Contender:
    """One way to decide, in a process of its own."""

    def __init__(self, run: Run, url: str, keys: int, callers: int, crowd: str = "uniform") -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(run, theirs, url, keys, callers, crowd), daemon=True)
        self._process.start()
        self._made = 0
        self._seen = self._turn(0.0)

    def take_turn(self, seconds: float) -> Turn:
        """Decide for so long. What is returned is of the turn before, with all that the process did since."""
        before, self._seen = self._seen, self._turn(seconds)
        return before[0], self._seen[1] - before[1]

    def turn(self, seconds: float) -> None:
        """Decide for so long."""
        self._made += self._turn(seconds)[0]

    def total(self) -> Turn:
        """Return the decisions of all turns, and the processor time for them, up to now."""
        made, (more, spent) = self._made, self._turn(0.0)
        self._made += more
        return made, spent

    def _turn(self, seconds: float) -> Turn:
        """Return the decisions of this turn, and the processor time up to its begin."""
        self._pipe.send(seconds)
        told: Turn = self._pipe.recv()
        return told

    def end(self) -> None:
        """End the process."""
        self._pipe.send(None)
        self._process.join(10.0)
        self._process.kill()


def _run(run: Run, pipe: Connection, url: str, keys: int, callers: int, crowd: str) -> None:
    run(pipe, url, CROWDS[crowd](keys), callers)


def _turns(pipe: Connection) -> Iterator[tuple[float, float]]:
    """Yield how long each turn lasts (s), and the processor time before it."""
    while (seconds := pipe.recv()) is not None:
        yield seconds, time.process_time()


def uniform(keys: int) -> Iterator[str]:
    """Yield keys at random, for ever; drawn before, because to draw one takes as long as a hit."""
    dice = random.Random(1)
    return cycle([f"user:{dice.randrange(keys)}" for _ in range(keys)])


def zipf(keys: int) -> Iterator[str]:
    """Do the same, but the demand of each key is as 1 over its rank."""
    ranks, weights = range(keys), list(accumulate(1 / (rank + 1) for rank in range(keys)))
    return cycle([f"user:{rank}" for rank in random.Random(1).choices(ranks, cum_weights=weights, k=keys)])


CROWDS = {"uniform": uniform, "Zipf": zipf}


def in_threads(call: Callable[[str], object], pipe: Connection, names: Names, callers: int) -> None:
    """Have threads decide."""
    for seconds, spent in _turns(pipe):
        made: list[int] = []
        ends = time.monotonic() + seconds
        crew = [threading.Thread(target=_decide, args=(call, names, ends, made)) for _ in range(callers)]
        for each in crew:
            each.start()
        for each in crew:
            each.join()
        pipe.send((sum(made), spent))


def _decide(call: Callable[[str], object], names: Iterator[str], ends: float, made: list[int]) -> None:
    calls = 0
    while not calls or time.monotonic() < ends:
        call(next(names))
        calls += 1
    made.append(calls)


async def in_tasks(
    call: Callable[[str], Awaitable[object]], pipe: Connection, names: Names, callers: int, at_once: int = 1
) -> None:
    """Have tasks decide, each so many keys at once."""
    turns = _turns(pipe)
    while (turn := await asyncio.to_thread(next, turns, None)) is not None:
        seconds, spent = turn
        ends = time.monotonic() + seconds
        made = await asyncio.gather(*(_decide_awaited(call, names, ends) for _ in range(callers)))
        pipe.send((at_once * sum(made), spent))


async def _decide_awaited(call: Callable[[str], Awaitable[object]], names: Iterator[str], ends: float) -> int:
    calls = 0
    while not calls or time.monotonic() < ends:
        await call(next(names))
        calls += 1
    return calls


def plain_words(key: str) -> tuple[Any, ...]:
    """Return the key and the arguments of a plain token bucket's script."""
    return f"plain:{key}", QUOTA.rate, QUOTA.burst, "whole", 1


def _take_words(number: Iterator[int], key: str) -> tuple[Any, ...]:
    return bucket_name("plain", key), QUOTA.encode(), "redis-py", f"{next(number)} 0 0 1 1 1 1 0 0 0"


def _script_of(script: str) -> tuple[str, Callable[[str], tuple[Any, ...]]]:
    """Return the text of one of SCRIPTS, and what makes a key's words of it."""
    return (SCRIPT, plain_words) if script == "plain" else (scripts.script("take"), partial(_take_words, count(1)))


def limiter(pipe: Connection, url: str, names: Names, callers: int) -> None:
    """Decide by a RateLimiter."""
    with RateLimiter.from_url(url, QUOTA, deadline=_DEADLINE) as ours:
        in_threads(ours.try_acquire, pipe, names, callers)


def by_redis_py(script: str, pipe: Connection, url: str, names: Names, callers: int) -> None:
    """Decide by a script and redis-py."""
    client: Any = redis.Redis.from_url(url)
    text, words = _script_of(script)
    with closing(client):
        evalsha = partial(client.evalsha, client.script_load(text), 1)
        in_threads(lambda key: evalsha(*words(key)), pipe, names, callers)


def limiter_awaited(pipe: Connection, url: str, names: Names, callers: int) -> None:
    """Decide by an AsyncRateLimiter."""

    async def run() -> None:
        async with AsyncRateLimiter.from_url(url, QUOTA, deadline=_DEADLINE) as limiter:
            await in_tasks(limiter.try_acquire, pipe, names, callers)

    asyncio.run(run())


def connected(url: str) -> "redis.asyncio.Redis":
    """Return a client whose callers wait for a connection: its own default fails them beyond a hundred."""
    return redis.asyncio.Redis(connection_pool=redis.asyncio.BlockingConnectionPool.from_url(url, timeout=None))


def by_redis_asyncio(script: str, pipe: Connection, url: str, names: Names, callers: int) -> None:
    """Decide by a script and redis.asyncio."""

    async def run() -> None:
        client: Any = connected(url)
        text, words = _script_of(script)
        evalsha = partial(client.evalsha, await client.script_load(text), 1)
        await in_tasks(lambda key: evalsha(*words(key)), pipe, names, callers)
        await client.aclose()

    asyncio.run(run())


_EVERY = {"threads": (by_redis_py, limiter), "tasks": (by_redis_asyncio, limiter_awaited)}


@contextmanager
def _contenders(url: str, script: str, keys: int, callers: int) -> Iterator[dict[str, tuple[Contender, Contender]]]:
    with ExitStack() as stack:
        found = {}
        for api, (of_redis_py, of_ours) in _EVERY.items():
            plain = Contender(partial(of_redis_py, script), url, keys, callers)
            ours = Contender(of_ours, url, keys, callers)
            stack.callback(plain.end)
            stack.callback(ours.end)
            found[api] = plain, ours
        yield found


def costs(
    url: str,
    script: str = SCRIPTS[0],
    keys: int = KEYS,
    seconds: float = TURN,
    rounds: int = ROUNDS,
    callers: int = CALLERS,
) -> dict[str, list[tuple[Turn, Turn]]]:
    """Return, by API, the turns of redis-py and of the limiter in each round; the first two rounds are not counted."""
    seen: dict[str, list[tuple[Turn, Turn]]] = {api: [] for api in _EVERY}
    with _contenders(url, script, keys, callers) as every:
        for number in range(rounds + 2):
            for api, pair in every.items():
                turns = [each.take_turn(seconds) for each in (pair if number % 2 else reversed(pair))]
                plain, ours = turns if number % 2 else reversed(turns)
                if number > 1:
                    seen[api].append((plain, ours))
    return seen


def ratios(seen: list[tuple[Turn, Turn]]) -> list[float]:
    """Return how many times the processor time of plain EVALSHA one decision took, in each round."""
    return [_each(ours) / _each(plain) for plain, ours in seen]


def whole_ratio(seen: list[tuple[Turn, Turn]]) -> float:
    """Return the same of all rounds together."""
    plain, ours = zip(*seen, strict=True)
    return _each(_total(ours)) / _each(_total(plain))


def _total(turns: Iterable[Turn]) -> Turn:
    decisions, seconds = zip(*turns, strict=True)
    return sum(decisions), sum(seconds)


def _each(turn: Turn) -> float:
    """Microseconds a decision."""
    decisions, seconds = turn
    return 1e6 * seconds / decisions


def figures(url: str, script: str, keys: int, seconds: float, rounds: int, callers: int) -> Iterator[Figure]:
    """What each took, and the ratio."""
    note = f"processor time; median of {rounds} rounds of {seconds:g} s, in turn; {keys:,} keys"
    for api, seen in costs(url, script, keys, seconds, rounds, callers).items():
        for name, turns in zip((f"redis-py, {script}", "try_acquire"), zip(*seen, strict=True), strict=True):
            yield Figure(f"{callers} {api}: {name}", statistics.median(map(_each, turns)), "us", note=note)
            note = ""
            yield Figure(f"{callers} {api}: {name}, decisions", statistics.median(n / seconds for n, _ in turns), "/s")
        yield Figure(f"{callers} {api}: median of the rounds' ratios", statistics.median(ratios(seen)))
        yield Figure(f"{callers} {api}: ratio", whole_ratio(seen), at_most=AT_MOST, note="of all rounds together")


def main() -> int:
    """Print one figure a line; the exit status says whether a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="embedded://")
    parser.add_argument("--script", choices=SCRIPTS, default=SCRIPTS[0], help="what redis-py runs")
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument(
        "--seconds", type=float, default=TURN, help="of each turn, in which each caller decides once or more"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--callers", type=int, default=CALLERS, help="threads or tasks of each contender")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--all", action="store_true", help="every client, by 1 to 64 threads and 1 to 1,000 tasks")
    chosen = parser.parse_args()
    with ExitStack() as stack:
        embedded = chosen.url == "embedded://"
        url = stack.enter_context(closing(EmbeddedServer())).url if embedded else chosen.url
        if chosen.all:
            from benchmarks.many_rivals import show

            return show(url, chosen.keys)
        found = report(
            figures(url, chosen.script, chosen.keys, chosen.seconds, chosen.rounds, chosen.callers),
            as_document=chosen.json,
        )
    return int(any(figure.verdict == "short" for figure in found))


if __name__ == "__main__":
    sys.exit(main())
