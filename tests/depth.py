"""How much a test tries: a small fixed budget that one waits for, or with `scripts/test --deep` all of it."""

import os
from typing import TypeVar

T = TypeVar("T")

DEEP = bool(os.environ.get("BATCHLIMIT_DEEP"))


def depth(usual: T, deep: T) -> T:
    """Return what to try: how many examples, seeds or rounds, or on which servers and frameworks."""
    return deep if DEEP else usual
