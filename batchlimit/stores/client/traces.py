"""Tracebacks without frames that hold passwords: error reporters capture the local variables of all frames.

redis-py holds passwords in `auth_args` and in the keyword arguments of its clients; ssl and asyncio in the bytes to
send. Our stores hold redis-py clients, of which some versions show the password. The server's message stays, and so do
all other frames, such as those of a signal handler that raised during a call.
"""

import sys
from collections.abc import Iterator
from types import TracebackType
from typing import TypeVar

from batchlimit.base.redaction import redacted

E = TypeVar("E", bound=BaseException)

_STORES = __name__.rpartition(".")[0]
_HIDDEN = frozenset({"redis", "hiredis", *sys.stdlib_module_names})


def untraced(error: E) -> E:
    """Remove those frames from an error and from its causes; return the error."""
    for each in _chain(error, set()):
        each.__traceback__ = _rest(each.__traceback__)
    return error


def silenced(error: E) -> E:
    """Remove possible passwords from the messages of an error and of its causes, and those frames; return it."""
    for each in _chain(error, set()):
        each.args = tuple(redacted(said) if isinstance(said, str) else said for said in each.args)
    return untraced(error)


def _chain(error: BaseException | None, seen: set[int]) -> Iterator[BaseException]:
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    yield error
    for led in (error.__cause__, error.__context__, *getattr(error, "exceptions", ())):
        yield from _chain(led, seen)


def _rest(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames that are hidden."""
    kept: list[TracebackType] = []
    while trace is not None:
        if not _is_hidden(trace.tb_frame.f_globals.get("__name__", "")):
            kept.append(trace)
        trace = trace.tb_next
    rest = None
    for each in reversed(kept):
        rest = TracebackType(rest, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return rest


def _is_hidden(module: str) -> bool:
    return module.partition(".")[0] in _HIDDEN or module == _STORES or module.startswith(f"{_STORES}.")
