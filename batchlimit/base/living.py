"""The rate limiters and Admins of this process: the testing kit finds them here, whenever they were made."""

import weakref
from collections.abc import Callable
from typing import Any

live_limiters: weakref.WeakSet[Any] = weakref.WeakSet()
"""Every rate limiter of this process, of both APIs, and every Admin."""
adopters: list[Callable[[Any], None]] = []
"""Each is called with every one that is made; empty outside of tests."""


def register(thing: Any) -> None:
    """Note that a limiter or an Admin was made."""
    live_limiters.add(thing)
    for adopt in adopters:
        adopt(thing)
