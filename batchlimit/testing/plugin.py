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


@pytest.fixture
def isolated_limits() -> Iterator[str]:
    """Limiters use buckets of this test alone, on the stores that they have; the value is the prefix."""
    from batchlimit.testing import isolated_limits

    with isolated_limits() as prefix:
        yield prefix


@pytest.fixture
def limit_prefix() -> str:
    """A prefix for limiters that a test makes, which no other test has."""
    from batchlimit.testing import fresh_prefix

    return fresh_prefix()
