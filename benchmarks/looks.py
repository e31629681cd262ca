"""What `batchlimit top`, `get` and `set --dry-run` cost a server that has many buckets.

    python -m benchmarks.looks [--buckets 1000000] [--budget 10] [--url redis://localhost:6379/0] [--json]

A server is started for it, or an empty one is named. The milliseconds of a look are by the server's own count of its
commands, as `top` tells them, and by its processor, with the reading and writing of connections.
"""

import argparse
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from statistics import median
from typing import Any

import redis

from batchlimit.admin import Admin
from batchlimit.cli.bucket import look_at
from batchlimit.cli.top.sampler import BUDGET, Sampler
from batchlimit.stores.embedded import EmbeddedServer
from benchmarks.calls import cases, first_takes
from benchmarks.figures import Figure, ran_on, report
from benchmarks.footprint import ONE
from benchmarks.pipeline import pipelined
from benchmarks.server import processor_time

_LOOKS, _BATCH = 20, 1000


def fill(client: Any, buckets: int) -> None:
    """Make so many buckets, and some overrides."""
    cases(client)
    todo = first_takes(ONE, range(buckets), 1)
    while batch := list(islice(todo, _BATCH)):
        pipelined(client, batch)


def figures(url: str, buckets: int, budget: float) -> Iterator[Figure]:
    """Yield what looks cost an empty server, which is empty again afterwards."""
    with closing(redis.Redis.from_url(url)) as client, Admin.from_url(url, deadline=10.0) as admin:
        if client.dbsize():
            raise ValueError(f"the server at {url} is not empty")
        try:
            fill(client, buckets)
            yield from _of_top(client, admin, buckets, budget)
            yield from _of_commands(client, admin)
        finally:
            client.flushdb()


def _of_top(client: Any, admin: Admin, buckets: int, budget: float) -> Iterator[Figure]:
    sampler, looks, processor = Sampler(admin.store, "batchlimit", budget), [], []
    for _ in range(_LOOKS):
        before = processor_time(client)
        looks.append(sampler.look())
        processor.append(1000 * (processor_time(client) - before))
    ms = [look.cost.ms for look in looks]
    # A step of a look is begun if it fits by the averages so far: of a stalled machine the last step may not.
    yield Figure("top: a look, by the server's count, median", median(ms), "ms", at_most=1.2 * budget)
    yield Figure("top: a look, at most", max(ms), "ms", note=f"of {_LOOKS}; the budget is {budget:g} ms")
    yield Figure("top: a look, by the server's processor", median(processor), "ms")
    yield Figure("top: commands of a look", median(look.cost.calls for look in looks))
    seen = median(len(look.samples) for look in looks)
    yield Figure("top: buckets of a look", seen, note=f"{buckets / max(1.0, seen):,.0f} looks see all")


def _of_commands(client: Any, admin: Admin) -> Iterator[Figure]:
    yield _spent(client, "get: a look", lambda: look_at(admin, "tenant:7"))
    yield _spent(client, "set --dry-run of a key", lambda: admin.plan("tenant:7", "5/s"))
    yield _spent(client, "set --dry-run of all keys", lambda: admin.plan("*", "5/s"))


def _spent(client: Any, name: str, look: Any) -> Figure:
    """What a look costs: the server's processor, and how many commands it is asked."""
    look()  # connects
    client.config_resetstat()
    before = processor_time(client)
    look()
    spent = 1000 * (processor_time(client) - before)
    stats = client.info("commandstats").items()
    calls = sum(each["calls"] for command, each in stats if command not in ("cmdstat_info", "cmdstat_config|resetstat"))
    return Figure(name, spent, "ms", note=f"{calls} commands")


def main() -> None:
    """Print one figure a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="another server, instead of one that is started; it has to be empty")
    parser.add_argument("--buckets", type=int, default=1_000_000, help="a million take a minute")
    parser.add_argument("--budget", type=float, default=BUDGET, help="milliseconds of a look of top")
    parser.add_argument("--json", action="store_true", help="one document instead of lines")
    chosen = parser.parse_args()
    ran = f"{chosen.buckets:,} buckets; {ran_on()}"
    if chosen.url:
        report(figures(chosen.url, chosen.buckets, chosen.budget), as_document=chosen.json, ran=ran)
        return
    with closing(EmbeddedServer()) as server:
        report(figures(server.url, chosen.buckets, chosen.budget), as_document=chosen.json, ran=ran)


if __name__ == "__main__":
    main()
