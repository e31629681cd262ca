"""Where a thread must not block: within another call of its own, or on an event loop.

Signal handlers and destructors interrupt their own thread: they must not wait for a lock that it holds.
"""

import sys
import threading
from collections.abc import Callable
from time import sleep
from typing import TYPE_CHECKING

from batchlimit.base.redaction import caution

if TYPE_CHECKING:
    import asyncio

    class OwnLock(threading.RLock):  # type: ignore[misc]  # final: nobody derives from it as the program runs
        """A lock to be entered by `not_reentered`, or as it is where nobody can be inside already."""

        def _is_owned(self) -> bool: ...  # of which the types of an RLock do not tell
else:
    OwnLock = threading.RLock

AMID = (
    "this call came during another one of the same thread, from a signal handler or a destructor, and would wait for it"
    " for ever; make it after that: from a handler set a flag, or use loop.add_signal_handler"
)


def not_reentered(lock: OwnLock) -> OwnLock:
    """Return a lock for a `with`, unless this thread is inside of it: then RuntimeError.

    Call it before the `with`. A thread that enters a lock written in C is not interrupted; in a method of our own
    around it, the thread could be. A handler that runs between the two has left the lock when it ends.
    """
    if lock._is_owned():
        raise RuntimeError(AMID)
    return lock


_TO_LEAVE = 32
"""Calls that are nested, at the most, where a caller leaves a queue."""
_IN_C = 8
"""Calls from a function in C that leaving may take, and three more. Python 3.12 and later limit them apart."""
_DEEP = 333
"""Frames of a stack that is looked at closely: those of 3.12.1 that call each other from C can be no more than 500."""


def check_recursion_depth() -> None:
    """Raise RecursionError unless 32 more calls can be nested here.

    Call it before a caller joins a queue or asks the store. With less room it may get that far, and no further: to
    leave takes as many calls. It would be waited for, and wait for itself, for ever.

    To nest them takes 3 us, which is done only where the stack is a third full, or has 333 frames. Python 3.11 counts
    functions in C too, which have no frame here; so a third, and not nearly all.
    """
    try:
        sys._getframe(min(sys.getrecursionlimit() // 3, _DEEP))
    except ValueError:  # the stack is not that deep
        return
    _nest(_TO_LEAVE)
    _nest_in_c(_IN_C)


def _nest(calls: int) -> None:
    if calls:
        _nest(calls - 1)


def _nest_in_c(calls: int) -> None:
    if calls:
        next(map(_nest_in_c, (calls - 1,)))


_MESSAGE = (
    "a RateLimiter is about to block the event loop that runs here, with all of its tasks: "
    "use an AsyncRateLimiter, or call it in a thread"
)
_warned = False
_ask: "Callable[[], asyncio.AbstractEventLoop | None] | None" = None


def warn_in_loop() -> None:
    """Warn, once a process, whoever is about to block an event loop by more than memory; in its debug mode."""
    global _warned  # noqa: PLW0603  that is what "once" means
    if not _warned and (loop := (_ask or _running_loop)()) is not None and loop.get_debug():
        _warned = True
        caution(_MESSAGE, RuntimeWarning)


def _running_loop() -> "asyncio.AbstractEventLoop | None":
    """Return the loop that runs in this thread; None also if nobody has imported asyncio."""
    # get_running_loop() raises where there is none: that takes ten times as long, at every miss.
    global _ask  # noqa: PLW0603  found once
    if _ask is None:
        # It has none while a thread imports it; asyncio.events has another one for a moment, which sees no loop.
        _ask = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    return _ask() if _ask else None


_MOMENT = 1e-4
"""Seconds: to sleep for no time at all hands the interpreter to nobody."""


def give_way() -> None:
    """Let other threads run for a moment during a long count; not on an event loop, which would stop for longer."""
    if _running_loop() is None:
        sleep(_MOMENT)
