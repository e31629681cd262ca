"""A bucket as HGETALL shows it: what its fields say, how small it stays, and what becomes of a damaged one."""

from collections.abc import Iterator
from typing import Any

import pytest
from fakeredis import FakeAsyncRedis, FakeRedis, FakeServer

from batchlimit.bucket.messages import Ask, GiveBack, Spend
from batchlimit.bucket.state import read_bucket
from batchlimit.cli.top.board import FIELDS as FIELDS_OF_TOP
from batchlimit.cli.top.board import sampled
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.quota import Quota
from batchlimit.stores.async_redis import AsyncRedisStore
from batchlimit.stores.client.scripts import bucket_name
from batchlimit.stores.protocols import Store
from batchlimit.stores.redis import RedisStore
from tests.awaiting import BlockingStore
from tests.servers import SERVERS, Servers

KEY = "tenant:42"
HUNDRED = Quota(0.001, 100)
TEN = Ask("a", 1, need=10, queued=10, want=10, round_trip=2.0)
NEEDED = ["quota", "epoch", "version", "level", "outstanding", "shares", "times", "instance:a"]
FIELDS = [*NEEDED[:5], "used", *NEEDED[5:]]


@pytest.fixture(params=[*SERVERS, "fakeredis"])
def client(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Any]:
    """A client of each server there is, which reads text."""
    if request.param == "fakeredis":
        yield FakeRedis(decode_responses=True)
        return
    with servers.get(request.param).client(decode_responses=True) as client:
        yield client


def taken(client: Any, prefix: str) -> RedisStore:
    """A store with a bucket of a hundred, of which an instance holds ten."""
    store = RedisStore(client, prefix=prefix)
    assert store.take(KEY, HUNDRED, TEN).granted == 10
    return store


def test_the_fields_of_a_bucket_show_its_level_and_the_tokens_of_each_instance(client: Any, prefix: str) -> None:
    taken(client, prefix)
    fields = client.hgetall(bucket_name(prefix, KEY))
    assert list(fields) == FIELDS
    assert (fields["quota"], fields["version"], fields["outstanding"]) == ("0.001/1:100", "1", "10")
    assert float(fields["level"]) == 90
    assert fields["shares"].split()[:2] == ["1", "1"]
    held, _seen, lease, granted, seq, weight, _served = fields["instance:a"].split()
    assert (held, lease, granted, seq, weight) == ("10", "4000000", "10", "1", "1")


def test_a_bucket_that_is_only_spent_of_has_two_small_fields_that_tell_the_same(client: Any, prefix: str) -> None:
    name, quota = bucket_name(prefix, KEY), Quota.parse("5/minute")
    RedisStore(client, prefix=prefix).spend([[Spend(KEY, quota, 2, 259_200.0)]])
    fields = client.hgetall(name)
    assert list(fields) == ["q", "s"]
    epoch, time, since, _kept, used, level = map(int, fields["s"].split())
    assert (fields["q"], time, since, used, level) == ("5/60:5", 0, -259_200, 2, 3)
    state = read_bucket(fields, epoch / 1e6 + 12.0)
    assert (state.quota, state.levels, state.used, state.instances) == (quota, (4.0,), 2, ())
    sample = sampled(KEY, {name: fields[name] for name in FIELDS_OF_TOP if name in fields}, epoch / 1e6 + 12.0)
    assert sample is not None
    assert (sample.level, sample.used) == (0.8, 2)
    if not isinstance(client, FakeRedis):
        # What glibc hands out may be 16 bytes more than was asked for, of the key and of the fields each.
        assert client.memory_usage(name) - len(name) <= 128 + 2 * 16


def test_an_instance_that_leaves_takes_its_field_along(client: Any, prefix: str) -> None:
    taken(client, prefix).give_back(KEY, HUNDRED, GiveBack("a", 2, tokens=10))
    fields = client.hgetall(bucket_name(prefix, KEY))
    assert list(fields) == FIELDS[:-1]
    assert (fields["level"], fields["outstanding"]) == ("100", "0")


def test_a_usual_bucket_is_one_small_block_of_memory(client: Any, prefix: str) -> None:
    if isinstance(client, FakeRedis):
        pytest.skip("it has no forms of a hash")
    store, quota = RedisStore(client, prefix=prefix), Quota.parse("10/minute; 100/hour; 1000/day")
    store.take(KEY, quota, TEN._replace(instance="0123456789abcdef", need=3, seq=10**9, age=1e6))
    store.take(KEY, quota, TEN._replace(instance="fedcba9876543210", need=3, seq=10**9, age=1e6))
    assert client.object("encoding", bucket_name(prefix, KEY)) in ("listpack", "ziplist")


@pytest.mark.parametrize("rubbish", [None, "", "theirs", "nan", "\x00\x17"], ids=repr)
def test_a_damaged_field_makes_its_bucket_unavailable(client: Any, prefix: str, rubbish: str | None) -> None:
    store, name = taken(client, prefix), bucket_name(prefix, KEY)
    sound = client.hgetall(name)
    for field in NEEDED:
        if rubbish is not None:
            client.hset(name, field, rubbish)
        elif field != "instance:a":  # without that one the instance is new
            client.hdel(name, field)
        else:
            continue
        with pytest.raises(BucketUnavailable, match="may not be a bucket"):
            store.take(KEY, HUNDRED, TEN._replace(seq=2))
        with pytest.raises(BucketUnavailable, match="may not be a bucket"):
            store.give_back(KEY, HUNDRED, GiveBack("a", 2, tokens=10))
        client.hset(name, mapping=sound)
    assert store.take(KEY, HUNDRED, TEN._replace(seq=2, held=10)).level == 80


@pytest.mark.parametrize("rubbish", ["", "theirs", "nan", "\x00\x17"], ids=repr)
def test_a_damaged_count_stops_no_caller(client: Any, prefix: str, rubbish: str) -> None:
    store, name = taken(client, prefix), bucket_name(prefix, KEY)
    client.hset(name, mapping={"used": rubbish, "refused": rubbish})
    assert store.take(KEY, HUNDRED, TEN._replace(seq=2, held=10, refused=3)).level == 80
    assert store.rules.bucket(KEY)[0]["outstanding"] == "20"


@pytest.fixture(params=["threads", "tasks"])
def fake(request: pytest.FixtureRequest) -> tuple[Any, Store]:
    """A server in this process, by its client for threads, and a store on it, for threads or for tasks."""
    server = FakeServer()
    tasks = request.param == "tasks"
    store: Store = (
        BlockingStore(AsyncRedisStore(FakeAsyncRedis(server=server))) if tasks else RedisStore(FakeRedis(server=server))
    )
    return FakeRedis(server=server), store


def test_a_hash_of_another_kind_is_left_as_it_is(fake: tuple[Any, Store]) -> None:
    client, store = fake
    client.hset(bucket_name("batchlimit", KEY), mapping={"q": "\x01\x00", "s": "\x00", "ha": "\x00"})
    before = client.hgetall(bucket_name("batchlimit", KEY))
    with pytest.raises(BucketUnavailable, match="may not be a bucket"):
        store.take(KEY, HUNDRED, TEN)
    with pytest.raises(BucketUnavailable, match="may not be a bucket"):
        store.give_back(KEY, HUNDRED, GiveBack("a", 2, tokens=10))
    with pytest.raises(BucketUnavailable, match="may not be a bucket"):
        store.peek(KEY, HUNDRED)
    assert client.hgetall(bucket_name("batchlimit", KEY)) == before
