"""Gitaly's limits by call, repository and user on a real gRPC server: what was held at once, and who waited how long.

    python -m benchmarks.gitaly [--seconds 8]

The limits by call and repository, and by user, are those of Gitaly's documentation: `concurrency` (max_per_repo 20,
max_queue_size 10, max_queue_wait 1s) and `pack_objects_limiting` (max_concurrency 15, max_queue_length 200,
max_queue_wait 60s). Each call may be under way 60 times in all. The server is a process of its own; the handlers write
down from when to when they ran. Exit status 1 if a limit was exceeded. Of callers the table shows how many there were,
and how long they waited: half of them at most, and the longest.
"""

import argparse
import asyncio
import os
import random
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from batchlimit.concurrency import Keyed
from benchmarks.child import served
from benchmarks.figures import ran_on
from benchmarks.gitaly_server import HTTP, LIMITS, SSH, Served, serve
from benchmarks.markdown import table
from benchmarks.shared_permits.replay import most_at_once


@dataclass(frozen=True, slots=True)
class Callers:
    """Callers of one kind, who call again and again.

    Attributes:
        count: How many.
        method: What they call.
        repos: How many repositories they name; 1: all the same.
        users: How many users they are.
        seconds: How long a call takes.
    """

    name: str
    count: int
    method: str
    repos: int
    users: int
    seconds: float


LOAD = [
    Callers("a popular repository", 60, HTTP, 1, 60, 0.2),
    Callers("slow clones of one repository", 40, SSH, 1, 40, 2.5),
    Callers("one user, many repositories", 40, HTTP, 40, 1, 0.2),
    Callers("everybody else", 40, HTTP, 200, 200, 0.2),
]


Ends = dict[str, list[float]]
"""How calls ended ("served" or the reason of a refusal), and for how long each had waited (s)."""


async def offer(address: str, load: list[Callers], seconds: float) -> dict[str, Ends]:
    """Let all callers call for so long, once at least; return how their calls ended, by kind."""
    until, ends = time.monotonic() + seconds, {each.name: defaultdict[str, list[float]](list) for each in load}
    async with grpc.aio.insecure_channel(address) as channel:

        async def call(of: Callers, number: int, dice: random.Random) -> None:
            method: Any = channel.unary_unary(of.method)
            while True:
                told = (("user", f"{of.name}-{number % of.users}"), ("repo", f"{of.name}-{dice.randrange(of.repos)}"))
                asked = time.monotonic()
                try:
                    await method(str(of.seconds).encode(), metadata=told, timeout=100.0)
                    ends[of.name]["served"].append(time.monotonic() - asked - of.seconds)
                except grpc.aio.AioRpcError as error:
                    ends[of.name][_reason(error)].append(time.monotonic() - asked)
                    await asyncio.sleep(of.seconds * dice.random())
                if time.monotonic() >= until:
                    return

        callers = [call(of, n, random.Random(f"{of.name}-{n}")) for of in load for n in range(of.count)]
        await asyncio.gather(*callers)
    return {name: dict(each) for name, each in ends.items()}


def _reason(error: grpc.aio.AioRpcError) -> str:
    told = dict(error.trailing_metadata() or ())
    return str(told.get("batchlimit-reason", error.code().name))


@dataclass(frozen=True, slots=True)
class Finding:
    """The figures of one limit.

    Attributes:
        pattern: Its name.
        keyed: The limit.
        most: How many calls of one key ran at once at most.
        waited: How many callers waited.
        refused: How many were refused, by reason.
    """

    pattern: str
    keyed: Keyed
    most: int
    waited: int
    refused: dict[str, int]

    @property
    def kept(self) -> bool:
        """Whether there were never too many."""
        assert isinstance(self.keyed.limit, int)
        return self.most <= self.keyed.limit

    def row(self) -> list[str]:
        """Its line in the table."""
        queue = self.keyed.queue
        refused = ", ".join(f"{count:,} {reason}" for reason, count in sorted(self.refused.items())) or "none"
        return [
            f"`{self.pattern}`",
            f"{self.most} of {self.keyed.limit}{'' if self.kept else ' **BROKEN**'}",
            f"{queue.length}, {queue.max_wait:g} s",
            f"{self.waited:,}",
            refused,
        ]


def findings(served: Served) -> list[Finding]:
    """Return what each limit did."""
    found = []
    for pattern, counted in served.statistics.patterns.items():
        named = [holds for key, holds in served.holds.items() if _is_of(key, pattern)]
        most = max((most_at_once(holds) for holds in named), default=0)
        found.append(Finding(pattern, LIMITS[pattern], most, counted.waits.total, dict(counted.refused)))
    return found


def _is_of(key: str, pattern: str) -> bool:
    return key.startswith(pattern[:-1]) if pattern.endswith("*") else key == pattern


_KINDS = ("served", "queue_full", "queue_timeout")


def _shown(waits: list[float]) -> str:
    """How many there were, and how long they waited: half of them at most, and the longest."""
    ordered = sorted(waits)
    return f"{len(waits):,}; {ordered[len(waits) // 2]:.2f} s, {ordered[-1]:.2f} s" if waits else "none"


def measure(load: list[Callers], seconds: float) -> tuple[dict[str, Ends], list[Finding]]:
    """Offer a load to a new server; return how the calls ended, and what each limit did."""
    with served(serve) as (address, server):
        ends = asyncio.run(offer(address, load, seconds))
        server.send("what happened?")
        return ends, findings(server.recv())


def main() -> int:
    """Run it; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0)
    chosen = parser.parse_args()
    print(f"{ran_on()}; load {os.getloadavg()[0]:.1f}; {chosen.seconds:g} s\n", flush=True)
    ends, found = measure(LOAD, chosen.seconds)
    print(table(["limit", "most at once", "queue", "waited", "refused here"], [each.row() for each in found]))
    print(
        table(
            ["callers", *_KINDS],
            [[name, *(_shown(each.get(kind, [])) for kind in _KINDS)] for name, each in ends.items()],
        )
    )
    return int(not all(each.kept for each in found))


if __name__ == "__main__":
    sys.exit(main())
