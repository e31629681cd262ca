"""Work of destructors: they may run while their thread is inside a limiter, which then answers no other call."""

from _thread import start_new_thread
from collections.abc import Callable
from contextlib import suppress
from typing import Any


def do_later(function: Callable[..., object], *arguments: Any) -> None:
    """Call a function in a thread of its own; nobody does at the end of the process.

    `threading.Thread` would take locks that the thread of the destructor may hold.

    Args:
        function: the function.
        arguments: its arguments.
    """
    with suppress(RuntimeError):  # the interpreter ends
        start_new_thread(function, arguments)
