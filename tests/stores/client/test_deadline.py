"""A store that says that it is prompt keeps a caller's time: by the deadline there is an answer, or none."""

import contextlib
import select
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from batchlimit import StoreUnavailable
from batchlimit.bucket.messages import Ask
from batchlimit.quota.quota import Quota
from batchlimit.stores import RedisStore
from batchlimit.stores.client.deadline import CALL, NeedsConnection, RespSocket, current_deadline
from batchlimit.stores.client.transport import DirectTransport
from batchlimit.stores.embedded import EmbeddedStore
from batchlimit.stores.memory import MemoryStore
from batchlimit.stores.protocols import Remote
from batchlimit.sync.guarded_store import GuardedStore
from tests.servers import Server
from tests.stores.trouble import deadline_scope

KEY = "tenant:42"
HUNDRED = Quota(0.001, 100)
FIFTY = Ask("a", 1, need=50, queued=50, want=50, round_trip=2.0)
LONG = 30.0
"""Longer than this machine ever stalls."""


@pytest.fixture(params=["redis", "unix"])
def store(request: pytest.FixtureRequest, servers: object, valkey: Server, prefix: str) -> Iterator[RedisStore]:
    """A prompt store, over TCP and over a unix socket; it has no connection yet."""
    with contextlib.ExitStack() as stack:
        url = valkey.url if request.param == "unix" else stack.enter_context(_over_tcp(valkey))
        made = RedisStore.from_url(_named(url, prefix), prefix=prefix, connect_timeout=LONG, deadline=LONG)
        stack.callback(made.close)
        yield made


def test_the_reply_to_an_interrupted_call_reaches_no_other_call(servers: object, valkey: Server, prefix: str) -> None:
    """A signal handler that raises between the request and the reply: the next call must not take that for its own."""
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(_over_tcp(valkey))
        store = RedisStore.from_url(_named(url, prefix), prefix=prefix, connect_timeout=LONG, deadline=LONG)
        stack.callback(store.close)
        assert store.peek(KEY, HUNDRED).level == 100
        patch = stack.enter_context(pytest.MonkeyPatch.context())

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(RespSocket, "_receive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.take("rich", HUNDRED, FIFTY)
        patch.undo()
        assert store.peek(KEY, HUNDRED).level == 100
        assert store.peek("rich", HUNDRED).level in (50, 100), "it was carried out, or never arrived"


def test_a_deadline_that_an_interrupt_left_behind_has_no_effect() -> None:
    """An interrupt may fall between the end of the call and the end of its block."""
    CALL.until = time.monotonic() - 5.0
    assert current_deadline() is None
    until = time.monotonic() + LONG
    with deadline_scope(until):
        assert current_deadline() == until
    assert current_deadline() is None


@contextlib.contextmanager
def _over_tcp(server: Server) -> Iterator[str]:
    from tests.relay import Relay

    with Relay(server.url, 0.0) as relay:
        yield relay.url


def _named(url: str, name: str) -> str:
    return f"{url}?client_name={name}"


def _connections(server: Server, name: str) -> list[str]:
    with server.client(decode_responses=True) as client:
        return [each["id"] for each in client.client_list() if each["name"] == name]


# The deadline scope itself


def test_a_deadline_scope_holds_for_its_block_and_its_thread() -> None:
    seen: list[float | None] = []
    until = time.monotonic() + LONG
    assert current_deadline() is None
    with deadline_scope(until):
        thread = threading.Thread(target=lambda: seen.append(current_deadline()))
        thread.start()
        thread.join()
        assert current_deadline() == until
    assert current_deadline() is None
    assert seen == [None]


def test_the_deadline_of_a_call_ends_with_an_exception_too() -> None:
    seen: list[float | None] = []

    def fail() -> None:
        seen.append(current_deadline())
        raise KeyError

    guarded = GuardedStore(MemoryStore(), 5.0)
    with pytest.raises(KeyError):
        guarded.call(KEY, fail)
    assert (seen[0] is None, current_deadline()) == (False, None)


# Which stores are prompt


@pytest.mark.parametrize(
    ("url", "prompt"),
    [
        ("redis://h", True),
        ("valkey://h", True),
        ("unix:///s", True),
        ("redis://h?health_check_interval=5", False),
        ("rediss://h", False),
        ("valkeys://h", False),
        ("redis+cluster://h", False),
        ("redis+sentinel://h/s", False),
    ],
)
def test_a_client_of_our_own_for_one_server_without_tls_is_prompt(url: str, prompt: bool) -> None:
    store = RedisStore.from_url(url)
    assert isinstance(store, Remote)
    assert store.is_prompt is prompt
    store.close()


def test_a_client_of_the_callers_is_not_prompt() -> None:
    with redis.Redis() as client:
        assert not RedisStore(client).is_prompt


def test_stores_on_this_machine_are_prompt() -> None:
    memory: Remote = MemoryStore()
    assert memory.is_prompt
    store = EmbeddedStore()
    assert store.is_prompt
    store.close()


# What it means


def test_before_a_deadline_nothing_is_connected_to(store: RedisStore, valkey: Server, prefix: str) -> None:
    with pytest.raises(NeedsConnection), deadline_scope(time.monotonic() + LONG):
        store.take(KEY, HUNDRED, FIFTY)
    assert _connections(valkey, prefix) == []
    assert store.take(KEY, HUNDRED, FIFTY).granted == 50  # nothing of it was sent
    assert store.peek(KEY, HUNDRED).active_instances == 1


def test_within_a_deadline_scope_an_open_connection_is_used(store: RedisStore) -> None:
    store.peek(KEY, HUNDRED)
    with deadline_scope(time.monotonic() + LONG):
        assert store.take(KEY, HUNDRED, FIFTY).granted == 50
        store.probe(KEY)


def test_a_connection_that_was_lost_while_idle_is_not_replaced_before_a_deadline(
    store: RedisStore, valkey: Server, prefix: str
) -> None:
    store.peek(KEY, HUNDRED)
    (lost,) = _connections(valkey, prefix)
    with valkey.client() as client:
        client.client_kill_filter(_id=lost)
    while _connections(valkey, prefix):
        pass
    _await_end(store._transport._idle[0]._sock)  # type: ignore[union-attr]
    with pytest.raises(NeedsConnection), deadline_scope(time.monotonic() + LONG):
        store.take(KEY, HUNDRED, FIFTY)
    assert store.take(KEY, HUNDRED, FIFTY).granted == 50
    assert len(_connections(valkey, prefix)) == 1


def test_a_store_that_was_closed_opens_no_connection(valkey: Server, prefix: str) -> None:
    """A call that is under way meanwhile would wait on it, and nobody would close it."""
    store = RedisStore.from_url(valkey.url, prefix=prefix)
    store.peek("ann", Quota(1.0, 1))
    store.close()
    with pytest.raises(StoreUnavailable, match="this store was closed"):
        store.peek("ann", Quota(1.0, 1))


def test_a_store_that_is_closed_amid_a_call_says_so(
    valkey: Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing takes the connection apart that the call has just opened."""
    store, connect = RedisStore.from_url(valkey.url, prefix=prefix), DirectTransport._connect

    def closing(transport: DirectTransport, connection: Any) -> None:
        connect(transport, connection)
        store.close()

    monkeypatch.setattr(DirectTransport, "_connect", closing)
    with pytest.raises(StoreUnavailable, match="this store was closed"):
        store.peek("ann", Quota(1.0, 1))


def test_a_connection_in_use_is_closed_by_its_user_so_that_no_other_file_gets_its_number(valkey: Server) -> None:
    transport: Any = RedisStore.from_url(valkey.url)._transport
    used, idle = transport._make(), transport._make()
    for each in (used, idle):
        each.connect()
    transport._put_back(idle)
    connected = used._sock
    transport.close()
    assert idle._sock is None
    assert connected.fileno() >= 0
    assert connected.recv(1) == b"", "its user hears that it has ended"
    transport._put_back(used)
    assert connected.fileno() < 0


def test_a_deadline_scope_leaves_the_pool_as_it_was(store: RedisStore, valkey: Server, prefix: str) -> None:
    for _ in range(10):
        with pytest.raises(NeedsConnection), deadline_scope(time.monotonic() + LONG):
            store.take(KEY, HUNDRED, FIFTY)
    store.peek(KEY, HUNDRED)
    for _ in range(10):
        with deadline_scope(time.monotonic() + LONG):
            store.peek(KEY, HUNDRED)
        store.peek(KEY, HUNDRED)
    assert len(_connections(valkey, prefix)) == 1


@pytest.mark.parametrize("piece", [b"", b"x"], ids=["stands still", "dribbles"])
def test_a_reply_that_never_ends_ends_with_the_deadline(piece: bytes) -> None:
    """Though each byte came in time; without a deadline the store would wait for an hour."""
    with _dribbling(piece) as (url, _):
        store = RedisStore.from_url(url, deadline=3600.0)
        store.peek("first", HUNDRED)
        over = time.monotonic() + 0.1
        with pytest.raises(StoreUnavailable, match=r"(?i)timeout"), deadline_scope(over):
            store.take(KEY, HUNDRED, FIFTY)
        assert time.monotonic() >= over
        store.close()


def test_after_a_timeout_the_late_reply_reaches_no_other_call() -> None:
    with _dribbling(b"") as (url, late):
        store = RedisStore.from_url(url, deadline=LONG)
        store.peek("first", HUNDRED)
        with pytest.raises(StoreUnavailable), deadline_scope(time.monotonic() + 0.05):
            store.take(KEY, HUNDRED, FIFTY)
        late.set()
        with pytest.raises(NeedsConnection), deadline_scope(time.monotonic() + LONG):
            store.take(KEY, HUNDRED, FIFTY)
        store.close()


def _await_end(connection: socket.socket) -> None:
    """Return when the end of the connection has arrived here."""
    while select.select([connection], [], [], LONG)[0] and connection.recv(1, socket.MSG_PEEK):
        pass


@contextlib.contextmanager
def _dribbling(piece: bytes) -> Iterator[tuple[str, threading.Event]]:
    """A server that answers a first EVALSHA, and then for ever with the beginning of an answer, in such pieces.

    When the event is set it says the rest, if the caller is still there.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    late, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=_dribble, args=[listener, piece, late, over])
    thread.start()
    try:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}?protocol=2", late
    finally:
        over.set()
        late.set()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


def _dribble(listener: socket.socket, piece: bytes, late: threading.Event, over: threading.Event) -> None:
    connection, _ = listener.accept()
    asked = 0
    with connection, contextlib.suppress(ConnectionError):
        while heard := connection.recv(1 << 16):
            connection.sendall(b"+OK\r\n" * heard.count(b"SETINFO"))
            asked += heard.count(b"EVALSHA")
            if asked == 1:
                connection.sendall(b"*3\r\n:1\r\n:0\r\n:0\r\n")
            elif asked:
                break
        connection.sendall(b"$1000000\r\n")
        while not over.wait(0.02) and not late.is_set():
            connection.sendall(piece)
        connection.sendall(b"*10\r\n" + b":0\r\n" * 10)
