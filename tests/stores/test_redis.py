"""What only a store on a real server can do: expire, lose its state or its scripts, fail, and be unreachable."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from batchlimit.bucket.messages import Ask, GiveBack, Level, Spend
from batchlimit.errors import StoreUnavailable
from batchlimit.quota.quota import Quota
from batchlimit.stores.client.scripts import bucket_name, command
from batchlimit.stores.redis import RedisStore
from tests.servers import SERVERS, Server
from tests.stores.trouble import deadline_scope

KEY = "tenant:42"
SLOW = 0.001
HUNDRED = Quota(SLOW, 100)
AWAY = 2.0
"""An instance that says that it is so far away (s) has leases of 4 s: a machine that stalls ends none of them."""
FIFTY = Ask("a", 1, need=50, queued=50, want=50, round_trip=AWAY)
NOTHING = Ask("a", 2, need=0, queued=0, want=0, round_trip=AWAY)


@pytest.fixture
def private() -> Iterator[Server]:
    """A server for one test alone, which may spoil it."""
    with SERVERS["valkey"]() as url:
        yield Server("private", url)


# How a bucket is kept


def test_a_bucket_is_one_key(server: Server, redis_store: RedisStore, prefix: str) -> None:
    redis_store.take(KEY, HUNDRED, FIFTY)
    with server.client(decode_responses=True) as client:
        assert client.keys(f"*{prefix}*") == [bucket_name(prefix, KEY)]


def test_a_look_makes_no_key(server: Server, redis_store: RedisStore, prefix: str) -> None:
    redis_store.peek(KEY, HUNDRED)
    redis_store.give_back(KEY, HUNDRED, GiveBack("a", 1, tokens=1))
    with server.client() as client:
        assert client.exists(bucket_name(prefix, KEY)) == 0


def test_prefixes_do_not_share_a_bucket(server: Server, redis_store: RedisStore, prefix: str) -> None:
    redis_store.take(KEY, HUNDRED, FIFTY)
    with server.client() as client:
        assert RedisStore(client, prefix=f"{prefix}-other").peek(KEY, HUNDRED).level == 100


@pytest.mark.parametrize(
    "quota", [HUNDRED, Quota(100.0, 40), Quota(1e6, 2), Quota(1000.0, 3) & Quota(SLOW, 100)], ids=str
)
def test_a_bucket_expires_but_not_before_it_is_full(
    server: Server, redis_store: RedisStore, prefix: str, quota: Quota
) -> None:
    name, missing = bucket_name(prefix, KEY), min(50, quota.largest_cost)
    to_full = max(missing / part.rate for part in quota.bandwidths)
    ask = Ask("a", 1, need=1, queued=missing, want=missing)
    with server.client() as client:
        redis_store.take(KEY, quota, ask)
        # The store adds a margin of 5 s, up to 1 s of slack, and a lease, which is 1.5 s at the most.
        assert to_full < client.pttl(name) / 1000 < to_full + 7.6
        redis_store.take(KEY, quota, ask._replace(seq=2, need=quota.largest_cost, queued=100, want=100))
        assert client.pttl(name) > 0
        redis_store.give_back(KEY, quota, GiveBack("a", 3, tokens=1))
        assert client.pttl(name) > 0


def test_a_bucket_that_takes_centuries_to_fill_is_kept_for_years(
    server: Server, redis_store: RedisStore, prefix: str
) -> None:
    year_ms = 365 * 24 * 3600 * 1000
    redis_store.take(KEY, Quota(1e-9, 100), FIFTY)
    with server.client() as client:
        assert year_ms < client.pttl(bucket_name(prefix, KEY)) <= 100 * year_ms


# What a server may lose


def test_lost_scripts_change_nothing(server: Server, redis_store: RedisStore) -> None:
    with server.client() as client:
        client.script_flush()
        assert redis_store.take(KEY, HUNDRED, FIFTY).granted == 50
        client.script_flush()
        assert Level(*redis_store.peek(KEY, HUNDRED)[:3]) == Level(level=50, outstanding=50, active_instances=1)
        client.script_flush()
        assert redis_store.give_back(KEY, HUNDRED, GiveBack("a", 2, tokens=20, held=30)) == 20
        client.script_flush()
        held = NOTHING._replace(seq=3, held=30)
        assert redis_store.take(KEY, HUNDRED, held).kept == 30


@pytest.mark.parametrize(("fill", "level"), [(0.0, 0), (0.5, 50), (1.0, 100)])
def test_a_lost_bucket_begins_anew_as_full_as_the_instance_says(
    server: Server, redis_store: RedisStore, fill: float, level: int
) -> None:
    before = redis_store.take(KEY, HUNDRED, FIFTY)
    with server.client() as client:
        client.flushall()
    after = redis_store.take(KEY, HUNDRED, NOTHING._replace(held=50, epoch=before.epoch, fill=fill))
    assert after.epoch != before.epoch
    assert (after.kept, after.level) == (0, level)
    assert redis_store.peek(KEY, HUNDRED).outstanding == 0


def test_a_bucket_that_is_new_to_the_instance_begins_full(redis_store: RedisStore) -> None:
    assert redis_store.take(KEY, HUNDRED, FIFTY._replace(fill=0.0)).granted == 50


def test_a_lost_bucket_takes_nothing_back(server: Server, redis_store: RedisStore) -> None:
    redis_store.take(KEY, HUNDRED, FIFTY)
    with server.client() as client:
        client.flushall()
    assert redis_store.give_back(KEY, HUNDRED, GiveBack("a", 2, tokens=50)) == 0
    assert Level(*redis_store.peek(KEY, HUNDRED)[:3]) == Level(level=100, outstanding=0, active_instances=0)


def test_a_connection_that_was_lost_while_idle_is_replaced(server: Server, prefix: str) -> None:
    store = RedisStore.from_url(_named(server, prefix), prefix=prefix)
    store.take(KEY, HUNDRED, FIFTY)
    with server.client(decode_responses=True) as client:
        (connection,) = _connections(client, prefix)
        client.client_kill_filter(_id=connection["id"])
    assert store.peek(KEY, HUNDRED).level == 50
    store.close()


# Whose client it is


def test_a_client_that_the_caller_made_stays_open(server: Server, prefix: str) -> None:
    with server.client() as client:
        store = RedisStore(client, prefix=prefix)
        store.take(KEY, HUNDRED, FIFTY)
        connection = client.client_id()
        store.close()
        assert client.client_id() == connection


def test_a_client_that_the_store_made_is_closed(server: Server, prefix: str) -> None:
    store = RedisStore.from_url(_named(server, prefix), prefix=prefix)
    store.take(KEY, HUNDRED, FIFTY)
    with server.client(decode_responses=True) as client:
        assert len(_connections(client, prefix)) == 1
        store.close()
        deadline = time.monotonic() + 10.0
        while _connections(client, prefix):
            assert time.monotonic() < deadline


def test_a_client_that_decodes_replies_works_too(server: Server, prefix: str) -> None:
    with server.client(decode_responses=True) as client:
        store = RedisStore(client, prefix=prefix)
        first = store.take(KEY, HUNDRED, FIFTY)
        assert (first.granted, first.level) == (50, 50)
        store.take(KEY, Quota(SLOW, 200), NOTHING._replace(held=50))
        told = store.take(KEY, HUNDRED, NOTHING._replace(seq=3, held=50, age=3600.0))
        assert told.quota == Quota(SLOW, 200)
        assert store.give_back(KEY, HUNDRED, GiveBack("a", 4, tokens=50)) == 50


@pytest.mark.parametrize("prefix", ["", "a b", "{a}"])
def test_a_prefix_that_would_split_a_bucket_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        RedisStore(redis.Redis(), prefix=prefix)


# What fails


def test_a_wrong_password_is_not_shown(private: Server) -> None:
    with private.client() as client:
        client.config_set("requirepass", "correct")
    store = RedisStore.from_url(f"{private.url}?password=secret")
    with pytest.raises(StoreUnavailable) as caught:
        store.take(KEY, HUNDRED, FIFTY)
    store.close()
    assert store.address in str(caught.value)
    assert all("secret" not in text for text in [str(caught.value), repr(caught.value), store.address, repr(store)])


def test_a_connection_that_was_logged_out_is_replaced(private: Server) -> None:
    """As a proxy does whose sessions end: on it nobody would ever log in again."""
    with private.client() as client:
        client.config_set("requirepass", "correct")
    store = RedisStore.from_url(f"{private.url}?password=correct")
    store.take(KEY, HUNDRED, FIFTY)
    (connection,) = store._transport._idle  # type: ignore[union-attr]
    connection.resp.exchange(command(("RESET",)), 1)
    with pytest.raises(StoreUnavailable, match="NOAUTH"):
        store.peek(KEY, HUNDRED)
    assert store.peek(KEY, HUNDRED).level == 50
    store.close()


def test_a_connection_that_cannot_be_made_is_not_tried_before_one_that_is_there(
    valkey: Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lay on top, and one caller alone never came to the other."""
    store = RedisStore.from_url(valkey.url, prefix=prefix, deadline=30.0)
    store.peek(KEY, HUNDRED)
    line: Any = store._transport
    (working,) = line._idle
    line._idle.clear()
    monkeypatch.setattr(type(working), "_connect", _refuse)
    with pytest.raises(StoreUnavailable):
        store.peek(KEY, HUNDRED)
    (broken,) = line._idle
    line._idle.clear()
    for each in (working, broken):  # they come back in this order
        line._put_back(each)
    assert store.peek(KEY, HUNDRED).level == 100
    store.close()


def _refuse(*_: object) -> None:
    raise ConnectionRefusedError("no way")


def test_a_key_of_another_type_is_an_error_and_stays_what_it_was(
    server: Server, redis_store: RedisStore, prefix: str
) -> None:
    name = bucket_name(prefix, KEY)
    with server.client() as client:
        client.set(name, "theirs")
        for call in (
            lambda: redis_store.take(KEY, HUNDRED, FIFTY),
            lambda: redis_store.give_back(KEY, HUNDRED, GiveBack("a", 1, tokens=1)),
            lambda: redis_store.peek(KEY, HUNDRED),
        ):
            with pytest.raises(StoreUnavailable, match="WRONGTYPE"):
                call()
        assert client.get(name) == b"theirs"
    assert redis_store.take("another", HUNDRED, FIFTY).granted == 50


def test_a_server_without_memory_grants_nothing(private: Server) -> None:
    store = RedisStore.from_url(private.url)
    store.take(KEY, HUNDRED, FIFTY)
    with private.client() as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreUnavailable, match=r"OOM|maxmemory"):
            store.take(KEY, HUNDRED, FIFTY._replace(seq=2, held=50))
        client.config_set("maxmemory", 0)
    assert Level(*store.peek(KEY, HUNDRED)[:3]) == Level(level=50, outstanding=50, active_instances=1)
    store.close()


def test_a_replica_grants_nothing(private: Server) -> None:
    store = RedisStore.from_url(private.url)
    with private.client() as client:
        client.replicaof("127.0.0.1", 1)
        with pytest.raises(StoreUnavailable, match=r"(?i)read.?only"):
            store.take(KEY, HUNDRED, FIFTY)
    store.close()


def test_a_server_that_stands_still_is_left_in_time_and_an_ask_it_got_is_not_charged_twice(private: Server) -> None:
    with private.client() as client:
        pid = client.info("server")["process_id"]
    store = RedisStore.from_url(private.url, deadline=3600.0)
    store.take(KEY, HUNDRED, Ask("b", 1, need=10, queued=10, want=10, round_trip=AWAY))
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable, match=r"(?i)time"), deadline_scope(time.monotonic() + 0.1):
            store.take(KEY, HUNDRED, FIFTY)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert store.take(KEY, HUNDRED, FIFTY).granted == 50
    assert Level(*store.peek(KEY, HUNDRED)[:3]) == Level(level=40, outstanding=60, active_instances=2)
    store.close()


def test_a_server_that_stood_still_charges_no_spend_of_which_nobody_awaits_the_answer(private: Server) -> None:
    with private.client() as client:
        pid = client.info("server")["process_id"]
    store = RedisStore.from_url(private.url, deadline=3600.0)
    spend = [[Spend(KEY, HUNDRED, 10)]]
    store.peek(KEY, HUNDRED)  # connect: the clock of the server is known as well as a call is short
    assert store.spend(spend).groups[0]
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable, match=r"(?i)time"), deadline_scope(time.monotonic() + 0.5):
            store.spend(spend, within=0.05)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert store.peek(KEY, HUNDRED).level == 90
    assert store.spend(spend, within=-60.0).groups == [None]
    assert store.spend(spend, within=60.0).groups[0]
    assert store.peek(KEY, HUNDRED).level == 80
    store.close()


def _named(server: Server, name: str) -> str:
    """The server's url for a connection that `_connections` finds."""
    return f"{server.url}?client_name={name}"


def _connections(client: redis.Redis, name: str) -> list[dict[str, str]]:
    return [each for each in client.client_list() if each["name"] == name]


def test_what_a_handler_raised_by_another_limiter_replaces_the_client_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of its pooled connections may have the unread reply of the call that was interrupted."""
    store = RedisStore.from_url("redis+cluster://127.0.0.1:1")
    transport = store._transport

    def interrupted(*_: object) -> None:
        raise StoreUnavailable("of another store")

    monkeypatch.setattr(transport, "run", interrupted)
    with pytest.raises(StoreUnavailable, match="of another store"):
        store.peek("k", Quota(1.0, 1))
    assert store._transport is not transport
    store.close()
