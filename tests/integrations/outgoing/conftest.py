"""A server to ask, and clients of every library that ask it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integrations.outgoing.clients import CLIENTS, Client
from tests.integrations.outgoing.upstream import Upstream, upstream


@pytest.fixture
def server() -> Iterator[Upstream]:
    with upstream() as found:
        yield found


@pytest.fixture(params=CLIENTS, ids=lambda kind: kind.__name__.lower())
def make(request: pytest.FixtureRequest) -> Iterator[Callable[..., Client]]:
    """Makes clients, and closes them."""
    made: list[Client] = []

    def one(*args: Any, **options: Any) -> Client:
        made.append(request.param(*args, **options))
        return made[-1]

    yield one
    for each in made:
        each.close()
