"""How much a test tries: a small fixed budget that one waits for, or with `scripts/test --deep` all of it."""

import os

DEEP = bool(os.environ.get("BATCHLIMIT_DEEP"))


def depth(usual: int, deep: int) -> int:
    """Return how many examples, seeds or rounds to try."""
    return deep if DEEP else usual
