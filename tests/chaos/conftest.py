"""Processes for the tests of this folder: started once, for they take longer to start than a scenario to play."""

from collections.abc import Iterator

import pytest

from tests.chaos.crew import Crew
from tests.servers import Unavailable, valkey_binary


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    """Four processes; where there is no server for them, the tests are skipped."""
    try:
        valkey_binary()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with Crew(4) as crew:
        yield crew
