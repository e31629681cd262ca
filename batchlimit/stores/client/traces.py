"""Tracebacks without the frames in which passwords are: error reporters capture the local variables of all frames.

redis-py has them in `auth_args` and in the keyword arguments of its clients, ssl and asyncio in the bytes to send, and
our stores hold its clients, of which some versions show the password. What a server said stays, and so do the frames of
all others, such as a signal handler that raised amid redis-py.
"""

import sys
from collections.abc import Iterator
from types import TracebackType
from typing import TypeVar

from batchlimit.redaction import redacted

E = TypeVar("E", bound=BaseException)

_STORES = __name__.rpartition(".")[0]
_HIDDEN = frozenset({"redis", "hiredis", *sys.stdlib_module_names})


def untraced(error: E) -> E:
    """Take those frames from an error, and from all that led to it; return it."""
    for each in _chain(error, set()):
        each.__traceback__ = _rest(each.__traceback__)
    return error


def silenced(error: E) -> E:
    """Take what may be a password from what an error of redis-py says, and from all that led to it, frames included."""
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
