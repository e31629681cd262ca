"""Commands as they are typed, on a real server."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from batchlimit import Quota
from batchlimit.admin import Admin
from batchlimit.bucket.messages import Ask
from batchlimit.cli.app import app
from batchlimit.stores import RedisStore
from batchlimit.stores.client.scripts import bucket_name
from tests.servers import Server

Run = Callable[..., Result]
SLOW = Quota(0.001, 100)
TEN = Ask("one", 1, 10, 10, 10, refused=3, shadow_refused=4)


def lease(store: RedisStore, key: str, ask: Ask = TEN) -> None:
    """Lease tokens for an hour: the store leases for 4 s at the most, and no command counts what is over."""
    assert store.take(key, SLOW, ask).granted == ask.need
    client: Any = store.primaries()[0][1]
    name, field = bucket_name(store._prefix, key), f"instance:{ask.instance}"
    held, seen, _, *rest = client.hget(name, field).split()
    client.hset(name, field, b" ".join([held, seen, b"3600000000", *rest]))


def typed_at(url: str, prefix: str) -> Run:
    """A command, as it is typed where the environment names this store."""

    def typed(*words: str, typed_in: str | None = None) -> Result:
        env = {"BATCHLIMIT_URL": url, "BATCHLIMIT_PREFIX": prefix, "NO_COLOR": "1", "TERMINAL_WIDTH": "200"}
        return CliRunner().invoke(app, list(words), env=env, input=typed_in)

    return typed


@pytest.fixture
def run(valkey: Server, prefix: str) -> Run:
    """A command, as it is typed."""
    return typed_at(valkey.url, prefix)


@pytest.fixture
def admin(valkey: Server, prefix: str) -> Iterator[Admin]:
    """What an operator's own program does, on the same store."""
    with Admin.from_url(valkey.url, prefix=prefix) as admin:
        yield admin


@pytest.fixture
def environment(valkey: Server, prefix: str) -> dict[str, str]:
    """Of a process that runs a command."""
    return os.environ | {"BATCHLIMIT_URL": valkey.url, "BATCHLIMIT_PREFIX": prefix}
