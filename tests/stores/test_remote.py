"""What a store says of its parts, and whether it could serve a key, without touching the key's bucket."""

import pytest

from batchlimit import StoreUnavailable
from batchlimit.bucket.messages import Ask, Level
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.quota import Quota
from batchlimit.stores.client.scripts import bucket_name
from batchlimit.stores.embedded import AsyncEmbeddedStore, EmbeddedStore
from batchlimit.stores.memory import AsyncMemoryStore, MemoryStore
from batchlimit.stores.protocols import AsyncRemote, Remote
from tests.awaiting import awaited
from tests.nodes import node
from tests.servers import Server, Servers, valkey_binary
from tests.stores import trouble
from tests.stores.opened import opened
from tests.stores.trouble import Trouble

KEY = "tenant:42"
HUNDRED = Quota(0.001, 100)
FIFTY = Ask("a", 1, need=50, queued=50, want=50, round_trip=2.0)
LONG = 30.0
REFUSALS = [
    trouble.refused,
    trouble.full,
    trouble.replica,
    trouble.busy,
    trouble.unsaved,
    trouble.no_slots,
    trouble.wrong_password,
    lambda: trouble.forbidden("allkeys", "+@all", "-hset"),
]


def test_every_store_is_remote() -> None:
    for remote in (MemoryStore(), EmbeddedStore()):
        assert isinstance(remote, Remote)
        assert remote.part(KEY) == ""
        remote.probe(KEY)
        remote.close()
    for other in (AsyncMemoryStore(MemoryStore()), AsyncEmbeddedStore()):
        assert isinstance(other, AsyncRemote)
        assert other.part(KEY) == ""
        awaited(other.probe, KEY)
        awaited(other.aclose)


def test_a_probe_changes_no_bucket(api: str, server: Server, prefix: str) -> None:
    with opened(api, server.url, prefix) as store:
        store.probe(KEY)
        assert Level(*store.peek(KEY, HUNDRED)[:3]) == Level(100, 0, 0)
        store.take(KEY, HUNDRED, FIFTY)
        store.probe(KEY)
        assert Level(*store.peek(KEY, HUNDRED)[:3]) == Level(50, 50, 1)


def test_a_probe_uses_a_bucket_of_its_own_that_expires(server: Server, prefix: str) -> None:
    with opened("threads", server.url, prefix) as store, server.client(decode_responses=True) as client:
        store.probe(KEY)
        name = bucket_name(prefix, KEY) + ":probe"
        assert client.keys(f"*{prefix}*") == [name]
        assert 0 < client.pttl(name) < 60_000


@pytest.mark.parametrize("make", REFUSALS)
def test_a_probe_fails_wherever_a_take_would(api: str, make: Trouble) -> None:
    with make() as url, opened(api, url) as store, pytest.raises(StoreUnavailable):
        store.probe(KEY)


def test_a_probe_tells_that_the_key_lies_elsewhere(api: str, servers: Servers) -> None:
    nodes = servers.get("cluster").url.removeprefix("redis+cluster://").split(",")
    for key in ("k", "l", "m", "n"):
        told = [_probe(api, f"redis://{address}", key) for address in nodes]
        assert sorted(told) == ["served", "use redis+cluster://", "use redis+cluster://"]


def _probe(api: str, url: str, key: str) -> str:
    with opened(api, url) as store:
        try:
            store.probe(key)
        except BucketUnavailable as error:
            return "use redis+cluster://" if "redis+cluster://" in str(error) else "unavailable"
    return "served"


def test_another_type_at_the_name_of_the_probe_does_not_matter(api: str) -> None:
    with node(valkey_binary()) as one, opened(api, one.url) as store:
        one.ask("SET", bucket_name("batchlimit", KEY) + ":probe", "theirs")
        store.probe(KEY)


def test_one_server_has_one_part(api: str, valkey: Server, prefix: str) -> None:
    with opened(api, valkey.url, prefix) as store:
        store.probe(KEY)
        assert store.part(KEY) == ""


def test_the_parts_of_a_cluster_are_its_primaries(api: str, servers: Servers, prefix: str) -> None:
    url = servers.get("cluster").url
    with opened(api, url, prefix) as store:
        assert store.part(KEY) == ""  # it knows of none yet
        store.probe(KEY)
        parts = {store.part(f"{KEY}-{i}") for i in range(100)}
        assert parts == set(url.removeprefix("redis+cluster://").split(","))
        assert store.part(KEY) == store.part(KEY)
