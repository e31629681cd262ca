"""An error reporter such as production has: it captures the local variables of whatever an exception went through."""

from collections.abc import Iterator
from types import TracebackType


def captured(error: BaseException) -> str:
    """All that is said along the chain, and the locals of all frames but those of the tests."""
    return "\n".join(line for each in _chain(error, set()) for line in (str(each), *_locals(each.__traceback__)))


def _chain(error: BaseException | None, seen: set[int]) -> Iterator[BaseException]:
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    yield error
    for led in (error.__cause__, error.__context__):
        yield from _chain(led, seen)
    for part in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        yield from _chain(part, seen)


def _locals(trace: TracebackType | None) -> Iterator[str]:
    while trace is not None:
        frame = trace.tb_frame
        if not frame.f_globals.get("__name__", "").startswith("tests."):
            for name, value in frame.f_locals.items():
                yield f"{frame.f_code.co_filename}:{trace.tb_lineno} {name} = {_shown(value)}"
        trace = trace.tb_next


def _shown(value: object) -> str:
    """An interrupted constructor leaves an object without its attributes: its repr may fail, as reporters know."""
    try:
        return repr(value)
    except AttributeError as error:
        return f"<{type(value).__name__}: {error}>"
