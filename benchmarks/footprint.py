"""What buckets take in the server's memory: all that it has allocated, names and its own tables included."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from batchlimit.quota.quota import Quota
from benchmarks.calls import Command, first_takes
from benchmarks.figures import Figure
from benchmarks.pipeline import pipelined

_BATCH = 1000
_FEW = 10_000
_INSTANCES = 20
_TARGET = 400
# Of such a quota no bucket is full again, and forgotten, before all are there.
ONE = Quota.per_day(1000)
TWO = ONE & Quota.per_hour(100)


def footprint(client: Any, buckets: int) -> Iterator[Figure]:
    """Bytes for a bucket with one instance, and for each further instance. The server may do nothing else meanwhile."""
    few = min(_FEW, buckets)
    tenants = range(100_000, 100_000 + 3 * few + buckets)  # as `{batchlimit:tenant:123456}`
    one = _bytes(client, first_takes(ONE, tenants[:few], 1), few)
    many = _bytes(client, first_takes(ONE, tenants[few : 2 * few], _INSTANCES), few)
    two = _bytes(client, first_takes(TWO, tenants[2 * few : 3 * few], 1), few)
    million = _bytes(client, first_takes(ONE, tenants[3 * few :], 1), buckets)
    note = f"{buckets:,} of one instance; of {few:,} each of them {one:g}"
    yield Figure("memory: a bucket", million, "bytes", at_most=_TARGET, note=note)
    yield Figure("memory: a bucket of two bandwidths", two, "bytes", note=f"of {few:,}")
    yield Figure(
        "memory: each further instance", round((many - one) / (_INSTANCES - 1), 1), "bytes", note=f"up to {_INSTANCES}"
    )


def _bytes(client: Any, commands: Iterable[Command], number: int) -> float:
    before, todo = _used(client), iter(commands)
    while batch := list(islice(todo, _BATCH)):
        pipelined(client, batch)
    return round((_used(client) - before) / number, 1)


def _used(client: Any) -> int:
    return int(client.info("memory")["used_memory"])
