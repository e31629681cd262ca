"""A user with the rights that docs/redis.md names, and no others, can do all that a limiter does."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from batchlimit import AsyncRedisStore, RedisStore
from batchlimit.core.lease import Ask, GiveBack, Level
from batchlimit.core.quota import Quota
from tests.awaiting import BlockingStore
from tests.nodes import Node, node
from tests.servers import Unavailable, redis_binary, valkey_binary
from tests.topologies import cluster

_RULES = re.findall(r"^ACL (SETUSER .*)$", (Path(__file__).parents[2] / "docs" / "redis.md").read_text(), re.MULTILINE)
HUNDRED = Quota(0.001, 100)


def _use(url: str) -> None:
    stores: list[RedisStore | BlockingStore] = [
        RedisStore.from_url(url, connect_timeout=30.0, deadline=30.0),
        BlockingStore(AsyncRedisStore.from_url(url, connect_timeout=30.0, deadline=30.0)),
    ]
    for i, store in enumerate(stores):
        key = f"k{i}"
        store.probe(key)
        assert store.take(key, HUNDRED, Ask("a", 1, 50, 50, 50, round_trip=2.0)).granted == 50
        assert store.give_back(key, HUNDRED, GiveBack("a", 2, tokens=20, held=30)) == 20
        assert store.peek(key, HUNDRED) == Level(70, 30, 1)
        for other in range(8):
            store.take(f"{key}-{other}", HUNDRED, Ask("a", 1, 1, 1, 1))
        store.close()


def _allow(one: Node, *rules: str) -> None:
    for rule in rules:
        one.ask("ACL", *rule.split())


@pytest.mark.parametrize("binary", [valkey_binary, redis_binary])
def test_one_server(binary: Callable[[], str]) -> None:
    try:
        with node(binary()) as one:
            _allow(one, _RULES[0])
            _use(one.url.replace("://", "://limiter:password@") + "?client_name=limiter")
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_a_cluster() -> None:
    with cluster(valkey_binary(), 2) as whole:
        for one in whole.nodes:
            _allow(one, *_RULES)
        _use(whole.url.replace("://", "://limiter:password@"))
