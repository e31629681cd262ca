"""Hosts for the tests of this folder: started once, for they take longer to start than a scenario to play."""

from collections.abc import Iterator

import pytest

from tests.chaos import backend
from tests.chaos.crew import Crew
from tests.chaos.stage import Stage, stage
from tests.servers import Unavailable


@pytest.fixture(scope="package")
def crew() -> Iterator[Crew]:
    """Four hosts."""
    with Crew(4) as crew:
        yield crew


@pytest.fixture(params=["valkey", "redis_system"])
def binary(request: pytest.FixtureRequest) -> str:
    """Each of the servers that can be told to do all that befalls them."""
    try:
        path: str = getattr(backend, request.param)()
    except Unavailable as reason:
        pytest.skip(str(reason))
    return path


@pytest.fixture
def place(crew: Crew) -> Iterator[Stage]:
    """A server and a network that a test may ruin."""
    with stage(backend.valkey(), crew) as place:
        yield place
