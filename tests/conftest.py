"""Stores and servers as fixtures; a server that this machine lacks skips its tests, and the reason is shown."""

import time
import uuid
from collections.abc import Iterator

import pytest

from batchlimit.stores.base import Store
from batchlimit.stores.memory import MemoryStore
from batchlimit.stores.redis import RedisStore
from tests.servers import SERVERS, Server, Servers, Unavailable


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """The real servers by name, each started when it is first needed."""
    servers = Servers()
    yield servers
    servers.close()


@pytest.fixture
def prefix() -> str:
    """A part of the server's keys for this test alone, so that nothing needs to be flushed."""
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture(params=list(SERVERS))
def server(request: pytest.FixtureRequest, servers: Servers) -> Server:
    """Each of the real servers."""
    return _running(servers, request.param)


@pytest.fixture
def redis_store(server: Server, prefix: str) -> Iterator[RedisStore]:
    """A store on each of the real servers."""
    yield from _redis_store(server, prefix)


@pytest.fixture(params=["memory", *SERVERS])
def store(request: pytest.FixtureRequest, servers: Servers, prefix: str) -> Iterator[Store]:
    """Every store there is."""
    if request.param == "memory":
        yield MemoryStore(clock=time.monotonic)
    else:
        yield from _redis_store(_running(servers, request.param), prefix)


def _running(servers: Servers, name: str) -> Server:
    try:
        return servers.get(name)
    except Unavailable as reason:
        pytest.skip(str(reason))


def _redis_store(server: Server, prefix: str) -> Iterator[RedisStore]:
    with server.client() as client:
        store = RedisStore(client, prefix=prefix)
        yield store
        store.close()
