"""A blocking limiter on an event loop: it works, and it stops all other tasks while it waits."""

import asyncio

from batchlimit.core.caution import caution

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
    caution(_MESSAGE, RuntimeWarning)


def _debugs() -> bool:
    # get_running_loop() raises where there is none: that takes ten times as long, at every miss.
    return (loop := asyncio._get_running_loop()) is not None and loop.get_debug()
