"""Overrides that processes obey, and that the store has lost: buckets tell the revision that they are by."""

from typing import Any

import redis

from batchlimit.bucket.state import rules_of
from batchlimit.cli.store import buckets_of
from batchlimit.overrides.overrides import Overrides
from batchlimit.stores.client.diagnosis import FAILURES, failure
from batchlimit.stores.client.rulebook import text
from batchlimit.stores.redis import RedisStore

_SAMPLED = 500
"""Buckets of each server that are looked at."""
_STEPS = 50
"""SCANs for these, at most."""


def lost(revision: int, overrides: Overrides) -> tuple[str, str] | None:
    """Return what is wrong, and the remedy, if buckets are by a revision that the store does not have."""
    if revision <= overrides.revision:
        return None
    told = f"processes obey revision {revision} of the overrides, which the store has lost"
    return told, "`batchlimit unset --all` ends them, and so does setting any override anew"


def obeyed(store: RedisStore, prefix: str) -> int:
    """Return the last revision that buckets of a sample are by; 0: none, or this user may not look."""
    try:
        return max((_last(client, prefix) for _, client in store.primaries()), default=0)
    except redis.exceptions.NoPermissionError:
        return 0
    except FAILURES as error:
        raise failure(error, store.address) from error


def sample(client: Any, prefix: str) -> tuple[list[bytes], bool]:
    """Return the names of some buckets of one server, and whether there are no others."""
    cursor, names = 0, list[bytes]()
    for _ in range(_STEPS):
        cursor, found = client.scan(cursor, match=buckets_of(prefix), count=100)
        names += found
        if int(cursor) == 0 or len(names) >= _SAMPLED:
            break
    return names[:_SAMPLED], int(cursor) == 0


def _last(client: Any, prefix: str) -> int:
    pipeline = client.pipeline(transaction=False)
    for name in sample(client, prefix)[0]:
        pipeline.hget(name, "rank")
    ranks = pipeline.execute(raise_on_error=False)
    return max((rules_of(text(each)) for each in ranks if isinstance(each, str | bytes)), default=0)
