"""What goes wrong with a real server, each for the length of a `with`; and servers that only say so."""

import contextlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import redis

from batchlimit.stores.client.deadline import CALL
from tests.nodes import Node, await_fact, node
from tests.ports import free_port
from tests.servers import any_binary, valkey_binary

Trouble = Callable[[], contextlib.AbstractContextManager[str]]


@contextlib.contextmanager
def deadline_scope(until: float) -> Iterator[None]:
    """A deadline for all calls of this thread, as a limiter sets it for each."""
    CALL.until = until
    try:
        yield
    finally:
        CALL.until = None


@contextlib.contextmanager
def refused() -> Iterator[str]:
    """A port that nobody listens at, and that nobody else can have."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"redis://127.0.0.1:{bound.getsockname()[1]}"


@contextlib.contextmanager
def stopped() -> Iterator[str]:
    """A server that stands still."""
    with node(valkey_binary()) as one:
        one.stop()
        yield f"{one.url}?socket_timeout=0.2"


@contextlib.contextmanager
def without_tls() -> Iterator[str]:
    """A server that waits for the end of the line, as its caller does for a greeting of TLS."""
    with node(valkey_binary()) as one:
        yield f"{one.url.replace('redis', 'rediss')}?socket_timeout=0.2&socket_connect_timeout=0.2"


@contextlib.contextmanager
def loading() -> Iterator[str]:
    """A server that has so much to read after its start that it takes half a minute."""
    with node(valkey_binary(), "--key-load-delay", "0", "--loading-process-events-interval-bytes", "1024") as one:
        one.ask("MSET", *(word for i in range(2000) for word in (f"k{i}", "x" * 100)))
        one.ask("SAVE")
        one.kill()
        one.add("--key-load-delay", "10000")
        one.start()
        yield one.url


@contextlib.contextmanager
def _with(*options: str, binary: Callable[[], str] = valkey_binary) -> Iterator[str]:
    """A server with these options."""
    with node(binary(), *options) as one:
        yield one.url


full = partial(_with, "--maxmemory", "1")
replica = partial(_with, "--replicaof", "127.0.0.1 1")
"""A replica, whose primary is gone."""
orphan = partial(_with, "--replicaof", "127.0.0.1 1", "--replica-serve-stale-data", "no")
"""A replica that does not answer without its primary."""
lonely = partial(_with, "--min-replicas-to-write", "1", binary=any_binary)
"""A primary that wants replicas."""


@contextlib.contextmanager
def busy() -> Iterator[str]:
    """A server with a script that does not end."""
    with node(valkey_binary(), "--lua-time-limit", "1") as one:
        thread = threading.Thread(target=_spin, args=[one])
        thread.start()
        await_fact(lambda: "BUSY" in _said(one), "a busy server")
        try:
            yield one.url
        finally:
            one.ask("SCRIPT", "KILL")
            thread.join()


@contextlib.contextmanager
def unsaved() -> Iterator[str]:
    """A server that cannot save."""
    with node(valkey_binary()) as one:
        gone = f"{one.directory}/gone"
        os.mkdir(gone)
        one.add("--dir", gone, "--save", "3600 1")
        one.kill()
        one.start()
        shutil.rmtree(gone)
        one.ask("BGSAVE")
        await_fact(lambda: one.info("INFO", "persistence")["rdb_last_bgsave_status"] == "err", "a save that failed")
        yield one.url


@contextlib.contextmanager
def forbidden(*rules: str, binary: Callable[[], str] = valkey_binary) -> Iterator[str]:
    """A user who lacks something."""
    with node(binary()) as one:
        one.ask("ACL", "SETUSER", "guest", "on", ">secret", *rules)
        yield one.url.replace("://", "://guest:secret@")


@contextlib.contextmanager
def wrong_password() -> Iterator[str]:
    """A server that wants another password."""
    with node(valkey_binary(), password="right") as one:
        yield one.url.replace("right", "secret")


@contextlib.contextmanager
def no_password() -> Iterator[str]:
    """A server that wants a password, and a caller that knows none."""
    with node(valkey_binary(), password="right") as one:
        yield one.url.replace(":right@", "")


@contextlib.contextmanager
def no_slots() -> Iterator[str]:
    """A node of a cluster that has no slots."""
    with node(valkey_binary(), "--cluster-enabled", "yes", "--cluster-port", str(free_port())) as one:
        yield one.url


@contextlib.contextmanager
def crowded() -> Iterator[str]:
    """A server that serves one client, and has it."""
    with node(valkey_binary(), "--maxclients", "1") as one, one.client() as first:
        first.ping()
        yield one.url


@contextlib.contextmanager
def says(answer: bytes, times: int = 100) -> Iterator[str]:
    """A server that answers everything so; b"": it ends the connection."""
    with served(_answer, answer, times) as url:
        yield url


@contextlib.contextmanager
def served(serve: Callable[..., None], *arguments: object) -> Iterator[str]:
    """A server whose thread does this with a socket that listens."""
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve, args=[listener, *arguments])
    thread.start()
    try:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}?protocol=2"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


def _answer(listener: socket.socket, answer: bytes, times: int) -> None:
    for _ in range(times):
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            try:
                while (heard := connection.recv(1 << 16)) and answer:
                    # redis-py introduces itself by these commands.
                    connection.sendall(b"+OK\r\n" * heard.count(b"SETINFO") or answer)
            except ConnectionError:
                pass


def _spin(one: Node) -> None:
    with one.client() as client, contextlib.suppress(redis.RedisError):
        client.eval("while true do end", 0)


def _said(one: Node) -> str:
    try:
        one.ask("GET", "k")
    except redis.RedisError as error:
        return str(error)
    time.sleep(0.01)
    return ""
