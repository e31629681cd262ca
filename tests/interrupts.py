"""Signal handlers that raise at a call of ours, wherever it is, and asynchronous exceptions during calls of threads."""

import contextlib
import ctypes
import gc
import random
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from types import FrameType

import pytest

import batchlimit
from batchlimit import ConcurrencyLimited
from batchlimit.base.blocking import AMID

_OURS = batchlimit.__path__[0], contextlib.__file__


class Interrupt:
    """Raises at the nth call that the limiter's code makes, before or after it: there signal handlers run."""

    def __init__(self, n: int) -> None:
        self._left = n

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call", "c_return") and frame.f_code.co_filename.startswith(_OURS):
            self._left -= 1
            if self._left == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    def run(self, call: Callable[[], object]) -> bool:
        """Call once; return whether it was interrupted."""
        gc.disable()  # what others left behind is not what is interrupted
        sys.setprofile(self)
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
            gc.enable()
        return False


class Raise(Interrupt):
    """At any call but the end of a `with` for a lock: no signal is handled between its block and that."""

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if getattr(argument, "__name__", "") != "__exit__":
            super().__call__(frame, event, argument)

    @property
    def has_come(self) -> bool:
        """Whether there were so many calls. A destructor or the end of a generator may have swallowed it."""
        return self._left <= 0


def interrupted(story: Callable[[Raise], object]) -> None:
    """Tell a story again and again, interrupted at its first call, its second, and so on."""
    for n in count(1):
        interrupt = Raise(n)
        story(interrupt)
        if not interrupt.has_come:
            break
    assert n > 30, "it is told again at each of its calls"


class Stopped(BaseException):
    pass


def stop_at_random(call: Callable[[], object], raised: int) -> None:
    """Call in three threads, during so many asynchronous exceptions."""
    # Python 3.11 gives a new thread the exception of the one that starts it, which then waits for it for ever.
    call()
    over = threading.Event()

    wrong: list[RuntimeError] = []

    def work() -> None:
        while not over.is_set():
            with contextlib.suppress(Stopped, ConcurrencyLimited):
                try:
                    call()
                except RuntimeError as error:
                    # The background thread may not have ended the call that was interrupted here: this one is refused.
                    if str(error) != AMID:
                        wrong.append(error)

    def stubborn() -> None:
        while not over.is_set():
            with contextlib.suppress(Stopped):
                work()

    threads = [threading.Thread(target=stubborn) for _ in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        # One may fall into a destructor, and the next one into the hook of pytest that hears it.
        patch.setattr(sys, "unraisablehook", id)
        for thread in threads:
            thread.start()
        for _ in range(raised):
            victim = random.choice(threads).ident
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(victim or 0), ctypes.py_object(Stopped))
            time.sleep(0.0002)
        over.set()
        for thread in threads:
            thread.join(100)
            assert not thread.is_alive()
    assert not wrong
