"""What is awaited, for threads: one event loop in a thread of its own."""

from collections.abc import Callable
from typing import Any

from batchlimit.testing.contract.tasks import BlockingStore as BlockingStore
from batchlimit.testing.contract.tasks import awaited as _awaited


def awaited(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call it on the loop, and return what it returns when it is awaited."""
    return _awaited(call, *args, **kwargs)
