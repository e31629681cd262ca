"""The rate limiters of this process: the testing kit finds them here, those that were made before a test as well."""

import weakref
from collections.abc import Callable
from typing import Any

living: weakref.WeakSet[Any] = weakref.WeakSet()
"""Every rate limiter of this process, of both APIs."""
adopters: list[Callable[[Any], None]] = []
"""Each is called with every limiter that is made; empty outside of tests."""


def born(limiter: Any) -> None:
    """Note that a limiter was made."""
    living.add(limiter)
    for adopt in adopters:
        adopt(limiter)
