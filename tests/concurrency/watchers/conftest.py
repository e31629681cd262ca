"""Machines that a test makes up."""

from pathlib import Path

import pytest

from tests.concurrency.watchers.trees import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A machine without control groups, so far."""
    return Tree(tmp_path)
