"""A blocking limiter on an event loop: it works, and it stops all other tasks while it waits."""

import asyncio
import sys
import warnings

_MESSAGE = (
    "a RateLimiter is about to block the event loop that runs here, with all of its tasks: "
    "use an AsyncRateLimiter, or call it in a thread"
)
_warned = False


def warn_in_loop() -> None:
    """Warn, once a process, whoever is about to block a running event loop; in asyncio's debug mode alone.

    Called where a call leaves the memory: what is answered from it blocks nobody.
    """
    global _warned  # noqa: PLW0603  that is what "once" means
    if _warned or not _debugs():
        return
    _warned = True
    warnings.warn(_MESSAGE, RuntimeWarning, stacklevel=_depth())


def _debugs() -> bool:
    # get_running_loop() raises where there is none: that takes ten times as long, at every miss.
    return (loop := asyncio._get_running_loop()) is not None and loop.get_debug()


def _depth() -> int:
    """How many frames up the user's own code is, as `warnings` counts them from our caller on."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("batchlimit."):
        frame, depth = frame.f_back, depth + 1
    return depth
