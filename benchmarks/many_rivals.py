"""Decisions over 200,000 live keys, by everything that a Python service may ask a server with; see many_keys.py."""

import asyncio
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import islice, product
from multiprocessing.connection import Connection
from os import getloadavg
from typing import Any
from urllib.parse import urlsplit

import redis

from benchmarks.figures import ran_on
from benchmarks.many_keys import (
    CROWDS,
    Contender,
    Names,
    Run,
    by_redis_asyncio,
    by_redis_py,
    connected,
    in_tasks,
    in_threads,
    limiter,
    limiter_awaited,
    plain_words,
)
from benchmarks.rivals.store import SCRIPT

REDIS_PY, PIPELINES, GLIDE, OURS = "redis-py, EVALSHA", "redis.asyncio, pipelines by hand", "valkey-glide", "batchlimit"
THREADS, TASKS = (1, 8, 64), (1, 64, 1000)
_TURN, _ROUNDS = 0.4, 5
"""Seconds of a turn, and turns of each."""
_PIPELINED = 100
"""Calls of a pipeline made by hand, at the most."""


def _pipelines(pipe: Connection, url: str, names: Names, callers: int) -> None:
    """Each task decides on as many keys as its part of the callers, in one pipeline: what one writes by hand."""

    async def run() -> None:
        client: Any = connected(url)
        sha, each = await client.script_load(SCRIPT), min(callers, _PIPELINED)

        async def decide(first: str) -> None:
            pipeline = client.pipeline(transaction=False)
            for key in (first, *islice(names, each - 1)):
                pipeline.evalsha(sha, 1, *plain_words(key))
            await pipeline.execute()

        await in_tasks(decide, pipe, names, max(1, callers // each), at_once=each)
        await client.aclose()

    asyncio.run(run())


def _glide_threads(pipe: Connection, url: str, names: Names, callers: int) -> None:
    glide: Any = import_module("glide_sync")  # not everybody has it, so no check of types needs it

    where = urlsplit(url)
    address = glide.NodeAddress(where.hostname or "localhost", where.port or 6379)
    client: Any = glide.GlideClient.create(glide.GlideClientConfiguration([address]))
    script = glide.Script(SCRIPT)

    def decide(key: str) -> None:
        name, *words = plain_words(key)
        client.invoke_script(script, keys=[name], args=[str(word) for word in words])

    in_threads(decide, pipe, names, callers)


def _glide_tasks(pipe: Connection, url: str, names: Names, callers: int) -> None:
    glide: Any = import_module("glide")

    async def run() -> None:
        where = urlsplit(url)
        address = glide.NodeAddress(where.hostname or "localhost", where.port or 6379)
        client: Any = await glide.GlideClient.create(glide.GlideClientConfiguration([address]))
        script = glide.Script(SCRIPT)

        async def decide(key: str) -> None:
            name, *words = plain_words(key)
            await client.invoke_script(script, keys=[name], args=[str(word) for word in words])

        await in_tasks(decide, pipe, names, callers)

    asyncio.run(run())


def rivals(api: str, url: str) -> dict[str, Run]:
    """Return who decides by threads, or by tasks: valkey-glide if it is installed, and a server that has a port."""
    is_glide = bool(find_spec("glide_sync" if api == "threads" else "glide")) and not url.startswith("unix")
    found: dict[str, Run] = (
        {REDIS_PY: partial(by_redis_py, "plain"), GLIDE: _glide_threads, OURS: limiter}
        if api == "threads"
        else {
            REDIS_PY: partial(by_redis_asyncio, "plain"),
            PIPELINES: _pipelines,
            GLIDE: _glide_tasks,
            OURS: limiter_awaited,
        }
    )
    return {name: run for name, run in found.items() if is_glide or name != GLIDE}


class Cost:
    """What one contender did in all of its turns; its processor time, and the server's."""

    def __init__(self) -> None:
        self.decisions, self.seconds, self.client, self.server = 0, 0.0, 0.0, 0.0

    @property
    def figures(self) -> tuple[float, float, float]:
        """Decisions/s; microseconds of the client's processor time for each, and of the server's."""
        each = 1e6 / max(1, self.decisions)
        return self.decisions / self.seconds, self.client * each, self.server * each


def costs(url: str, api: str, callers: int, crowd: str, keys: int, seconds: float, rounds: int) -> dict[str, Cost]:
    """Have all of them take turns; the first is not counted, for keys and scripts come to be there."""
    runs = rivals(api, url)
    found = {name: Cost() for name in runs}
    every = {name: Contender(run, url, keys, callers, crowd) for name, run in runs.items()}
    with redis.Redis.from_url(url) as server:
        for number in range(rounds + 1):
            for name, contender in every.items():
                before = _spent(server)
                contender.turn(seconds)
                if number:
                    found[name].server += _spent(server) - before
                    found[name].seconds += seconds
                if number in (0, rounds):
                    sign = 1 if number else -1
                    decisions, spent = contender.total()
                    found[name].decisions += sign * decisions
                    found[name].client += sign * spent
    for contender in every.values():
        contender.end()
    return found


def show(url: str, keys: int) -> int:
    """Print a table for each crowd; the exit status."""
    print(ran_on())
    for crowd in CROWDS:
        print(f"\n{keys:,} keys, {crowd}: decisions/s (us of the client, of the server)")
        for api, callers in (*product(["threads"], THREADS), *product(["tasks"], TASKS)):
            found = costs(url, api, callers, crowd, keys, _TURN, _ROUNDS)
            told = "; ".join(f"{name} {_told(cost)}" for name, cost in found.items())
            print(f"{callers} {api}: {told}; load {getloadavg()[0]:.1f}", flush=True)
    return 0


def _told(cost: Cost) -> str:
    rate, client, server = cost.figures
    return f"{rate:,.0f} ({client:.1f}, {server:.1f})"


def _spent(server: "redis.Redis") -> float:
    seen: Any = server.info("cpu")
    return float(seen["used_cpu_user"] + seen["used_cpu_sys"])
