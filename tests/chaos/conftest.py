"""Processes for the tests of this folder: started once, for they take longer to start than a scenario to play."""

from collections.abc import Iterator

import pytest

from tests.chaos.crew import Crew


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    """Four processes."""
    with Crew(4) as crew:
        yield crew
