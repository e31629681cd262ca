"""How much a test tries: a small fixed budget that one waits for, or with `scripts/test --deep` all of it."""

import os
from typing import TypeVar

import pytest

T = TypeVar("T")

DEEP = bool(os.environ.get("BATCHLIMIT_DEEP"))
only_deep = pytest.mark.skipif(not DEEP, reason="scripts/test --deep runs it")
"""For a test that takes long and whose rule a faster test holds, or that runs a whole measurement."""


def depth(usual: T, deep: T) -> T:
    """Return what to try: how many examples, seeds or rounds, or on which servers and frameworks."""
    return deep if DEEP else usual
