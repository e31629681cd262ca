"""How a response of Django ends: its body was sent to the end, closed before, or it failed."""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any

from batchlimit.integrations.enforcement import Response
from batchlimit.integrations.headers import Header
from batchlimit.integrations.late import do_later


class Ending:
    """Watches one response, and tells of its end once: when the server closes it, or nobody keeps it any more.

    Args:
        response: the HttpResponse; its status and header fields are taken as they are now.
        error: what the view raised (default None).
        ended: is called once with the Response, in the thread that closes.
    """

    def __init__(self, response: Any, error: BaseException | None, ended: Callable[[Response], None]) -> None:
        self._ended: Callable[[Response], None] | None = ended
        self._status, self._error = response.status_code, error
        self._told: list[Header] = [
            (name.lower().encode(), value.encode("latin-1")) for name, value in response.items()
        ]
        self._sent, self._complete = 0, False
        if not response.streaming:
            self._sent, self._complete = len(response.content), True
        elif response.is_async:
            response.streaming_content = self._async_parts(response.streaming_content)
        else:
            response.streaming_content = self._parts(response.streaming_content)
        # `response.close` calls these, once. Django has no public name for them; a `close` of ours would be a cycle.
        response._resource_closers.append(self.end)  # noqa: SLF001

    def __repr__(self) -> str:
        return f"<Ending of a {self._status}, {self._sent} bytes sent>"

    def __del__(self) -> None:
        if (ended := self._ended) is not None:  # another middleware has put another response in its place
            self._ended = None
            do_later(ended, self._response())

    def end(self) -> None:
        """Tell of the end."""
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(self._response())

    def _response(self) -> Response:
        return Response(self._status, self._told, self._error, self._complete, self._sent)

    def _parts(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        try:
            for part in parts:
                self._sent += len(part)
                yield part
            self._complete = True
        except Exception as error:
            self._error = error
            raise

    async def _async_parts(self, parts: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        try:
            async for part in parts:
                self._sent += len(part)
                yield part
            self._complete = True
        except Exception as error:
            self._error = error
            raise
