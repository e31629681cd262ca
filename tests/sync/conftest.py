"""A clock that stands still."""

import pytest

from tests.sync.stage import Clock


@pytest.fixture
def clock() -> Clock:
    """Time stands still."""
    return Clock()
