"""The relay is a network: nothing is lost, changed or overtaken but as told; and through it the promise holds."""

import random
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from batchlimit import Quota
from benchmarks.audited_fleet.fleet import Row
from benchmarks.audited_fleet.plan import Plan, burst
from benchmarks.audited_fleet.trial import trial
from tests.depth import depth
from tests.relay import Relay
from tests.servers import Server
from tests.sync.stage import until

PATIENCE = 60.0
DELAYS = [0.0002, 0.001, 0.01]


@contextmanager
def listening() -> Iterator[tuple[socket.socket, str]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        yield listener, f"redis://127.0.0.1:{listener.getsockname()[1]}"


def connect(relay: Relay) -> socket.socket:
    return socket.create_connection(("127.0.0.1", urlsplit(relay.url).port or 0), PATIENCE)


def read(end: socket.socket) -> bytes:
    """All there is until the end."""
    return b"".join(iter(lambda: end.recv(1 << 16), b""))


@contextmanager
def pair(round_trip: float = 0.0002) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client's end, and the server's end of the same connection."""
    with listening() as (listener, url), Relay(url, round_trip) as relay, connect(relay) as client:
        server, _ = listener.accept()
        with server:
            server.settimeout(PATIENCE)
            yield client, server


@pytest.mark.parametrize("round_trip", DELAYS)
def test_bytes_arrive_unchanged_and_in_order(round_trip: float) -> None:
    """Both ways at once, and more than the sockets between them hold."""
    there, back = random.Random(1).randbytes(3_000_000), random.Random(2).randbytes(2_000_000)

    def send(end: socket.socket, words: bytes) -> None:
        end.sendall(words)
        end.shutdown(socket.SHUT_WR)

    with pair(round_trip) as (client, server), ThreadPoolExecutor(4) as pool:
        sent = [pool.submit(send, client, there), pool.submit(send, server, back)]
        heard = [pool.submit(read, server), pool.submit(read, client)]
        assert [each.result(PATIENCE) for each in heard] == [there, back]
        assert [each.result(PATIENCE) for each in sent] == [None, None]


@pytest.mark.parametrize("round_trip", DELAYS)
def test_nothing_arrives_before_its_time(round_trip: float) -> None:
    with pair(round_trip) as (client, server):
        begun = time.monotonic()
        client.sendall(b"ping")
        server.sendall(server.recv(4, socket.MSG_WAITALL))
        client.recv(4, socket.MSG_WAITALL)
        assert time.monotonic() - begun >= round_trip


@contextmanager
def relayed(server: Server) -> Iterator[tuple[Relay, redis.Redis]]:
    """A relay before a real server, and a client of it that is connected."""
    with Relay(server.url, 0.0002) as relay, client(relay) as told:
        told.ping()
        yield relay, told
        relay.restore()
        assert client(relay).ping()  # whatever it was, the network is good again


def client(relay: Relay, patience: float = PATIENCE) -> redis.Redis:
    retry = Retry(NoBackoff(), 0)
    return redis.Redis.from_url(relay.url, socket_timeout=patience, socket_connect_timeout=patience, retry=retry)


def shorten_timeout(told: redis.Redis) -> None:
    """Let a client be patient for a tenth of a second only, on the connection that it has."""
    connection = told.connection_pool.get_connection()
    sock: Any = connection._sock
    sock.settimeout(0.1)
    told.connection_pool.release(connection)


def test_a_held_reply_comes_too_late(valkey: Server) -> None:
    with relayed(valkey) as (relay, told):
        relay.hold(1000.0)
        shorten_timeout(told)
        with pytest.raises(redis.TimeoutError):
            told.ping()
        relay.restore()
        assert told.ping()


def test_what_is_dropped_is_late_and_not_lost(valkey: Server, prefix: str) -> None:
    with relayed(valkey) as (relay, told), client(relay, 0.1) as other:
        relay.drop()
        shorten_timeout(told)
        for each in (told, other):  # an old connection, and one that is made now
            with pytest.raises(redis.TimeoutError):
                each.incr(prefix)  # the new one does not come to ask this: its greeting is not answered
        relay.restore()
        with valkey.client() as direct:
            until(lambda: direct.get(prefix) == b"1")
            direct.delete(prefix)


def test_a_reset_ends_connections_and_new_ones_are_fine(valkey: Server) -> None:
    with relayed(valkey) as (relay, told):
        raw = connect(relay)
        raw.sendall(b"PING\r\n")
        assert raw.recv(100) == b"+PONG\r\n"
        relay.reset()
        with raw, pytest.raises(ConnectionResetError):
            raw.recv(1)
        told.connection_pool.disconnect()
        assert told.ping()


def test_who_is_refused_hears_it_at_once(valkey: Server) -> None:
    with relayed(valkey) as (relay, told):
        for _ in range(2):  # twice is as good as once
            relay.refuse()
            with pytest.raises(redis.ConnectionError):
                told.ping()
            with pytest.raises(ConnectionRefusedError):
                connect(relay)


def test_after_a_half_close_the_server_still_hears(valkey: Server, prefix: str) -> None:
    with relayed(valkey) as (relay, _), connect(relay) as raw, valkey.client() as direct:
        raw.sendall(b"PING\r\n")
        assert raw.recv(100) == b"+PONG\r\n"
        relay.half_close()
        assert read(raw) == b""
        raw.sendall(f"SET {prefix} x PX 60000\r\n".encode())
        until(lambda: direct.get(prefix) == b"x")


def test_a_lost_reply_was_carried_out(valkey: Server, prefix: str) -> None:
    with relayed(valkey) as (relay, told), connect(relay) as raw, valkey.client() as direct:
        relay.lose_replies()
        shorten_timeout(told)
        with pytest.raises(redis.TimeoutError):
            told.incr(prefix)
        raw.sendall(f"INCR {prefix}\r\n".encode())
        until(lambda: direct.get(prefix) == b"2")
        relay.restore()
        with pytest.raises(ConnectionResetError):  # rather than an answer to another question
            raw.recv(1)
        direct.delete(prefix)


def ignore(elapsed: float, rows: list[Row]) -> None:
    pass


@pytest.mark.parametrize("round_trip", depth([0.001], DELAYS))
def test_a_fleet_keeps_the_promise_through_it(valkey: Server, prefix: str, round_trip: float) -> None:
    quota = "500/s burst 100"
    with Relay(valkey.url, round_trip) as relay:
        plan = Plan(relay.url, quota, prefix, 2, 2, burst(Quota.parse(quota), 10, 0.8))
        shown = trial(plan, ignore)
    assert shown.excess == 0
    assert shown.admitted > 0
