"""Requests a second of one uvicorn worker, by no limiter and by ours, with the store 1 ms away.

    python -m benchmarks.web_served [--rounds 5] [--seconds 2] [--servers h11 httptools] [--apps bare usual]

`wrk` asks two applications of FastAPI over 8 connections that stay open. "bare" returns a dict of one number. "usual"
reads a record from a Redis 1 ms away (redis-py), checks it as a small Pydantic model, and returns that. uvicorn runs
with h11 and asyncio, which it comes with, and with httptools and uvloop, which `uvicorn[standard]` has.

The rounds of all contenders are interleaved: what a contender keeps is a ratio to the round of no limiter beside it.
Processor time is that of the worker, in its quickest round: the one that was disturbed least. "busy" is the part of the
time for which the worker had a processor; requests a second tell of the limiter where that is near 100 %. "two fixed
fields" is no limiter, but a middleware that adds two constant header fields. Needs `wrk` and Linux.
"""

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, asynccontextmanager, closing
from importlib.util import find_spec
from itertools import product
from statistics import median
from typing import Any, NamedTuple

import redis
import redis.asyncio
from fastapi import FastAPI
from pydantic import BaseModel

from batchlimit import AsyncRateLimiter
from batchlimit.integrations.asgi import RateLimitMiddleware
from batchlimit.rules import Rules
from batchlimit.stores.embedded import EmbeddedStore
from benchmarks.distance import distant
from benchmarks.web_asgi import fast
from benchmarks.web_floor import on_asgi
from benchmarks.web_rules import FLOOR_OF_FOUR, FLOOR_OF_ONE, FOUR, ONE, PATH, ROUTE, of_scope

_FIXED = "fixed"
_CONTENDERS: dict[str, tuple[str, list[Any], Any]] = {
    "none": ("no limiter", [], "off"),
    "floor": (FLOOR_OF_ONE, ONE, _FIXED),
    "floors": (FLOOR_OF_FOUR, FOUR, _FIXED),
    "one": ("1 rule", ONE, "draft-11"),
    "four": ("4 rules", FOUR, "draft-11"),
    "plain": ('4 rules, `headers="off"`', FOUR, "off"),
}
_SERVERS = {"h11": ["--http", "h11", "--loop", "asyncio"], "httptools": ["--http", "httptools", "--loop", "uvloop"]}
_MAX_START = 60.0
_KEEPS = 0.95


class Item(BaseModel):
    """A record of a shop."""

    id: int
    name: str
    price: float
    tags: list[str]


_RECORD = Item(id=7, name="A lamp", price=19.5, tags=["light", "home"]).model_dump_json()


def bare() -> FastAPI:
    """An application that does nothing else."""
    return fast()


def usual() -> FastAPI:
    """An application that does what applications do: it reads a record, checks it and returns it."""
    client = redis.asyncio.Redis.from_url(os.environ["STORE"])

    @asynccontextmanager
    async def life(_app: FastAPI) -> Any:
        async with client:
            yield

    app = FastAPI(lifespan=life)

    @app.get(ROUTE)
    async def item(id: int) -> Item:  # noqa: A002
        return Item.model_validate_json(await client.get(f"item:{id}") or "")

    return app


_APPS = {"bare": bare, "usual": usual}


def served() -> Any:
    """Return what a worker serves; its environment says what."""
    app = _APPS[os.environ["APP"]]()
    _, rules, headers = _CONTENDERS[os.environ["CONTENDER"]]
    if not rules:
        return app
    if headers == _FIXED:
        return on_asgi(app, rules)

    def limiter() -> AsyncRateLimiter:
        return AsyncRateLimiter.from_url(os.environ["STORE"], Rules(rules).quotas, deadline=5.0)

    return RateLimitMiddleware(app, limiter, rules, identify=of_scope, headers=headers, checks=False)


class Turn(NamedTuple):
    """One round of a contender: requests a second, and processor time of the worker for a request (s)."""

    rate: float
    used: float


class Worker:
    """One uvicorn worker in a process of its own."""

    def __init__(self, server: str, app: str, contender: str, store: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "uvicorn", "--factory", "benchmarks.web_served:served", *_SERVERS[server]]
        options = ["--port", str(self.port), "--log-level", "error", "--no-access-log"]
        told = {"STORE": store, "APP": app, "CONTENDER": contender}
        self._process = subprocess.Popen([*command, *options], env=os.environ | told)
        self._wait()

    def _wait(self) -> None:
        until = time.monotonic() + _MAX_START
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                return
            except OSError:
                if time.monotonic() > until or self._process.poll() is not None:
                    raise
                time.sleep(0.05)

    def load(self, seconds: int) -> Turn:
        """Ask for so long."""
        before = self._used()
        url = f"http://127.0.0.1:{self.port}{PATH}"
        told = subprocess.run(["wrk", "-t1", "-c8", f"-d{seconds}s", url], capture_output=True, text=True, check=True)
        if "Non-2xx" in told.stdout:
            raise SystemExit(told.stdout)
        requests = int(re.findall(r"(\d+) requests in", told.stdout)[0])
        rate = float(re.findall(r"Requests/sec:\s*([\d.]+)", told.stdout)[0])
        return Turn(rate, (self._used() - before) / requests)

    def _used(self) -> float:
        with open(f"/proc/{self._process.pid}/schedstat") as figures:
            return int(figures.read().split()[0]) / 1e9

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


def measured(workers: dict[str, Worker], rounds: int, seconds: int) -> dict[str, list[Turn]]:
    """Return the rounds of each contender."""
    found: dict[str, list[Turn]] = {name: [] for name in workers}
    for number in range(rounds + 1):
        for name, worker in workers.items():
            told = worker.load(seconds)
            if number:  # the first round warms up
                found[name].append(told)
    return found


def table(title: str, found: dict[str, list[Turn]]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield f"| {title} | requests/s | of no limiter | busy | processor, us a request | added, us | keeps by that |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    alone = min(each.used for each in found["none"])
    for name, turns in found.items():
        used = min(each.used for each in turns)
        keeps = median(ours.rate / theirs.rate for ours, theirs in zip(turns, found["none"], strict=True))
        busy = median(each.rate * each.used for each in turns)
        passed = f"{_CONTENDERS[name][0]} | {median(each.rate for each in turns):,.0f} | {keeps:.0%} | {busy:.0%}"
        yield f"| {passed} | {used * 1e6:.0f} | {(used - alone) * 1e6:.0f} | {alone / used:.0%} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each contender (default 5)")
    parser.add_argument("--seconds", type=int, default=2, help="length of a round (s, default 2)")
    parser.add_argument("--servers", nargs="+", choices=_SERVERS, default=[*_SERVERS], help="default: both")
    parser.add_argument("--apps", nargs="+", choices=_APPS, default=[*_APPS], help="default: both")
    chosen = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed, and makes the requests: install it")
    if "httptools" in chosen.servers and not (find_spec("httptools") and find_spec("uvloop")):
        raise SystemExit("httptools and uvloop are not installed: install them, or choose --servers h11")
    with ExitStack() as stack:
        store = stack.enter_context(closing(EmbeddedStore()))
        redis.Redis.from_url(store.url).set("item:7", _RECORD)
        far = stack.enter_context(distant(store.url, 0.001))
        for server, app in product(chosen.servers, chosen.apps):
            with ExitStack() as each:
                workers = {n: each.enter_context(closing(Worker(server, app, n, far))) for n in _CONTENDERS}
                found = measured(workers, chosen.rounds, chosen.seconds)
            print(*table(f"{app}, {server}", found), "", sep="\n")
    print(f"Medians of {chosen.rounds} rounds; the target is {_KEEPS:.0%}. Load {os.getloadavg()[0]:.1f} at the end.")


if __name__ == "__main__":
    main()
