"""Several keys in one round trip, for threads: in the place of each its own answer, or what is wrong with it."""

import contextlib
import socket
import time
from collections.abc import Iterator, Sequence

import pytest

from batchlimit import StoreUnavailable
from batchlimit.bucket.messages import Ask, Grant
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.quota import Quota
from batchlimit.stores import RedisStore
from batchlimit.stores.client.deadline import NeedsConnection
from batchlimit.stores.client.scripts import bucket_name
from batchlimit.stores.embedded import EmbeddedStore
from batchlimit.stores.protocols import Pipelined
from tests.nodes import node
from tests.servers import Server, Servers, valkey_binary
from tests.stores.trouble import deadline_scope, served

HUNDRED = Quota(0.001, 100)
LONG = 30.0
MANY = 50


def asks(seq: int = 1) -> list[tuple[str, Quota, Ask]]:
    """For another number of tokens at each key; a call that got another's reply would have another number."""
    return [(f"k{i}", HUNDRED, Ask("a", seq, need=i + 1, queued=i + 1, want=i + 1)) for i in range(MANY)]


def granted(answers: Sequence[Grant | StoreUnavailable]) -> list[object]:
    return [each.granted if isinstance(each, Grant) else type(each) for each in answers]


@contextlib.contextmanager
def opened(url: str, prefix: str) -> Iterator[RedisStore]:
    with contextlib.closing(RedisStore.from_url(url, prefix=prefix, connect_timeout=LONG, deadline=LONG)) as store:
        yield store


def test_which_stores_are_pipelined() -> None:
    with opened("redis://h", "p") as store, contextlib.closing(EmbeddedStore()) as embedded:
        stores: list[Pipelined] = [store, embedded]
        assert granted(stores[1].take_many(asks())) == [i + 1 for i in range(MANY)]


@pytest.mark.parametrize("name", ["valkey", "cluster", "sentinel"])
def test_each_key_has_its_own_answer(servers: Servers, prefix: str, name: str) -> None:
    with opened(servers.get(name).url, prefix) as store:
        assert granted(store.take_many(asks())) == [i + 1 for i in range(MANY)]


def test_a_client_of_the_callers_is_asked_for_one_after_the_other(valkey: Server, prefix: str) -> None:
    with valkey.client() as client:
        assert granted(RedisStore(client, prefix=prefix).take_many(asks())) == [i + 1 for i in range(MANY)]


def test_lost_scripts_do_not_show(prefix: str) -> None:
    with node(valkey_binary()) as one, opened(one.url, prefix) as store:
        for seq in range(1, 4):
            one.ask("FLUSHALL")
            one.ask("SCRIPT", "FLUSH")
            with deadline_scope(time.monotonic() + LONG) if seq > 1 else contextlib.nullcontext():
                assert granted(store.take_many(asks(seq))) == [i + 1 for i in range(MANY)]


def test_an_error_of_one_key_is_in_its_place(valkey: Server, prefix: str) -> None:
    with opened(f"{valkey.url}?client_name={prefix}", prefix) as store, valkey.client(decode_responses=True) as client:
        client.set(bucket_name(prefix, "k7"), "theirs")
        answers = granted(store.take_many(asks()))
        assert answers.pop(7) is BucketUnavailable
        assert answers == [i + 1 for i in range(MANY) if i != 7]
        assert store.peek("k8", HUNDRED).level == 91
        assert sum(each["name"] == prefix for each in client.client_list()) == 1


def test_an_error_of_all_keys_is_raised(prefix: str) -> None:
    with node(valkey_binary()) as one, opened(one.url, prefix) as store:
        store.peek("k", HUNDRED)
        one.kill()
        with pytest.raises(StoreUnavailable):
            store.take_many(asks())
        one.start()
        assert granted(store.take_many(asks())) == [i + 1 for i in range(MANY)]


def test_a_server_that_serves_none_of_them_has_failed(prefix: str) -> None:
    with node(valkey_binary(), "--maxmemory", "1") as one, opened(one.url, prefix) as store:
        with pytest.raises(StoreUnavailable, match="OOM") as caught:
            store.take_many(asks())
        assert not isinstance(caught.value, BucketUnavailable)


def test_a_deadline_scope_is_for_all_of_them(prefix: str) -> None:
    """The first answers come, and the others do not."""
    with (
        served(_answer, 3) as url,
        contextlib.closing(RedisStore.from_url(url, prefix=prefix, deadline=3600.0)) as store,
    ):
        with pytest.raises(NeedsConnection), deadline_scope(time.monotonic() + LONG):
            store.take_many(asks())
        store.peek("k", HUNDRED)
        over = time.monotonic() + 0.1
        with pytest.raises(StoreUnavailable, match=r"(?i)timeout"), deadline_scope(over):
            store.take_many(asks())
        assert time.monotonic() >= over


def _answer(listener: socket.socket, answers: int) -> None:
    """Answer so many calls, and no more."""
    connection, _ = listener.accept()
    with connection:
        while heard := connection.recv(1 << 16):
            connection.sendall(b"+OK\r\n" * heard.count(b"SETINFO"))
            asked = min(heard.count(b"EVALSHA"), answers)
            answers -= asked
            connection.sendall((b"*3\r\n:1\r\n:0\r\n:0\r\n" if answers == 2 else b"*10\r\n" + b":0\r\n" * 10) * asked)
