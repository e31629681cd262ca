"""The plugin of pytest: fixtures, and no import of batchlimit before one of them is used."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from batchlimit.testing import FrozenLimits


@pytest.fixture
def frozen_limits() -> "Iterator[FrozenLimits]":
    """All limiters live in memory, in time that stands still until the test moves it."""
    from batchlimit.testing import frozen_limits

    with frozen_limits() as limits:
        yield limits


@pytest.fixture
def limiting_off() -> Iterator[None]:
    """No limiter refuses."""
    from batchlimit.testing import limiting_off

    with limiting_off():
        yield


@pytest.fixture
def limiting_on() -> Iterator[None]:
    """Limiters limit, though the suite has called `limiting_off()`."""
    from batchlimit.testing import limiting_on

    with limiting_on():
        yield
