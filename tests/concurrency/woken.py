"""Who is to be woken after a change of a gate."""

from typing import Any

from batchlimit.concurrency.queue import GateWaiter


def woken(change: Any, *args: Any) -> list[GateWaiter]:
    """Make a change by a method of a gate; return who is to be woken then, as somebody who wakes them."""
    change(*args)
    found = list(change.__self__.unwoken)
    change.__self__.unwoken.clear()
    return found
