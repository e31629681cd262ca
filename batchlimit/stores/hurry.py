"""temporary."""

import contextlib
from collections.abc import Iterator


class NotPrompt(Exception):
    """."""


@contextlib.contextmanager
def hurry(until: float) -> Iterator[None]:
    """."""
    yield
