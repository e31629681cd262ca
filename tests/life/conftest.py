"""A server for one test alone."""

from collections.abc import Iterator

import pytest

from batchlimit.stores import RedisStore
from tests.servers import SERVERS, Server


@pytest.fixture
def private() -> Iterator[Server]:
    """A server for one test alone, which may hold it up."""
    with SERVERS["valkey"]() as url:
        yield Server("private", url)


@pytest.fixture
def private_store(private: Server, prefix: str) -> Iterator[RedisStore]:
    """A store on it, by which a test looks at what the limiters left there."""
    with private.client() as client:
        yield RedisStore(client, prefix=prefix)
