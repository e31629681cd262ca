"""Signal handlers and destructors interrupt their own thread: they must not wait for a lock that it holds."""

import threading
from typing import cast

from batchlimit.lock import OwnLock

AMID = (
    "this call came during another one of the same thread, from a signal handler or a destructor, and would wait for it"
    " for ever; make it after that: from a handler set a flag, or use loop.add_signal_handler"
)


def own_lock() -> OwnLock:
    """Return a lock to be entered by `with free(lock):`, or by `with lock:` where nobody can be inside already."""
    return cast(OwnLock, threading.RLock())


def free(lock: OwnLock) -> OwnLock:
    """Return a lock for a `with`, unless this thread is inside of it: then RuntimeError.

    Call it before the `with`. A thread that enters a lock written in C is not interrupted; in a method of our own
    around it, the thread could be. A handler that runs between the two has left the lock when it ends.
    """
    if lock._is_owned():
        raise RuntimeError(AMID)
    return lock


def room_to_leave(calls: int = 32) -> None:
    """Raise RecursionError unless so many more calls can be nested here; takes 1.5 us.

    Call it before a caller joins a queue or asks the store. With less room it may get that far, and no further: to
    leave takes as many calls. It would be waited for, and wait for itself, for ever.
    """
    if calls:
        room_to_leave(calls - 1)
