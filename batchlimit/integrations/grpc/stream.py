"""The responses of a call that streams them, on a threaded server."""

from collections.abc import Callable, Iterator
from typing import Any, Self

from batchlimit.integrations.grpc.ending import Ending


class Responses:
    """Hands out what a handler yields, and ends the call when the stream has ended.

    grpcio just asks no more when the client has gone: the call ends then, or if a worker is in the handler at the time,
    when that has come out.
    """

    __slots__ = ("_busy", "_context", "_ending", "_gone", "_responses", "_start")

    def __init__(self, start: Callable[[], Iterator[Any]], context: Any, ending: Ending) -> None:
        self._start, self._context, self._ending = start, context, ending
        self._responses: Iterator[Any] | None = None
        # Each side changes its own flag before it looks at the other's: whoever is second ends the call.
        self._busy, self._gone = True, False
        if not context.add_callback(self._leave):
            self._gone = True

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self._busy = True
        try:
            response = self._next()
        except StopIteration:
            self._ending.end(None, gone=self._gone)
            raise
        except BaseException as error:
            self._ending.end(error, gone=self._gone)
            raise
        self._busy = False
        if self._gone:
            self._ending.end(None, gone=True)
        return response

    def _next(self) -> Any:
        if self._responses is None:
            self._responses = iter(self._start())
        return next(self._responses)

    def _leave(self) -> None:
        """The call is over; in a thread of grpcio."""
        self._gone = True
        if not self._busy:
            self._ending.end(None, gone=True)
