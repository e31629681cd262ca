"""One request on its way through a WSGI application: it watches the response, and reports its end once, if late."""

from _thread import start_new_thread
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Self

from batchlimit.integrations.enforcement import Refusal, Response
from batchlimit.integrations.headers import Header, texts


def do_later(function: Callable[..., object], *arguments: Any) -> None:
    """Call a function in a thread of its own; nobody does at the end of the process.

    `threading.Thread` would take locks that the thread of the destructor may hold.
    """
    with suppress(RuntimeError):  # the interpreter ends
        start_new_thread(function, arguments)


Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], object]]
WSGIApp = Callable[[Any, Any], Iterable[bytes]]
"""Any application: frameworks have types of their own for these two."""

_FAILED = 500


def answer(refusal: Refusal, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """Answer a request with a refusal; HEAD gets no body."""
    length = (b"content-length", b"%d" % len(refusal.body))
    start_response(f"{refusal.status} {HTTPStatus(refusal.status).phrase}", texts([*refusal.headers, length]))
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [refusal.body]


def with_headers(start_response: StartResponse, headers: Sequence[Header]) -> StartResponse:
    """Return a `start_response` that adds fields."""
    ours = texts(headers)

    def start(status: str, fields: list[tuple[str, str]], *exc_info: object) -> Callable[[bytes], object]:
        return start_response(status, [*fields, *ours], *exc_info)

    return start


class WSGIExchange:
    """Adds fields to one response, and tells once how it ended: read to the end, closed before, or failed."""

    __slots__ = ("_body", "_close", "_ended", "_headers", "_sent", "_start_response", "_status", "_told")

    def __init__(
        self, start_response: StartResponse, headers: Sequence[Header], ended: Callable[[Response], None]
    ) -> None:
        self._start_response, self._headers = start_response, texts(headers)
        self._ended: Callable[[Response], None] | None = ended
        self._status, self._sent = 0, 0
        self._told: list[Header] = []

    def run(self, app: WSGIApp, environ: Environ) -> Self:
        """Call the application; return its body, which is to be iterated once and closed."""
        try:
            body = app(environ, self._start)
        except BaseException as error:
            self._end(error)
            raise
        self._body: Iterator[bytes] = iter(body)
        self._close: Callable[[], object] | None = getattr(body, "close", None)
        return self

    def _start(self, status: str, fields: list[tuple[str, str]], *exc_info: object) -> Callable[[bytes], object]:
        write = self._start_response(status, [*fields, *self._headers], *exc_info)
        self._status = int(status[:3])
        self._told = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in fields]

        def counted(data: bytes) -> object:
            self._sent += len(data)
            return write(data)

        return counted

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        try:
            part = next(self._body)
        except StopIteration:
            self._end(None, complete=True)
            raise
        except BaseException as error:
            self._end(error)
            raise
        self._sent += len(part)
        return part

    def close(self) -> None:
        """End the response, as a server does whether it has sent all of it or not."""
        close, self._close = self._close, None
        try:
            if close is not None:
                close()
        finally:
            self._end(None)

    def __del__(self) -> None:
        if (ended := self._ended) is not None:  # of a server that forgot to close
            self._ended = None
            do_later(ended, self._response(None))

    def _end(self, error: BaseException | None, *, complete: bool = False) -> None:
        """Tell of the end, once."""
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(self._response(error, complete=complete))

    def _response(self, error: BaseException | None, *, complete: bool = False) -> Response:
        return Response(self._status or _FAILED, self._told, error, complete, self._sent)
