"""Bodies that can be read again or were made here, and those of httpx and httpx2 that hold a permit until closed."""

import io
from collections.abc import AsyncIterator, Iterator
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchlimit.integrations.outgoing_permit import OutgoingPermit


class Stream:
    """A body that is read in a thread. Its request is under way until it is closed, or an error ends it."""

    def __init__(self, stream: Any, permit: "OutgoingPermit") -> None:
        self._stream, self._permit = stream, permit

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._stream
        except GeneratorExit:  # who read it goes away, and closes it
            raise
        except BaseException as error:
            self._permit.end(error)
            raise

    def close(self) -> None:
        """Close the body below."""
        try:
            self._stream.close()
        finally:
            self._permit.end()


class AsyncStream(Stream):
    """The same for tasks."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._stream:
                yield part
        except GeneratorExit:
            raise
        except BaseException as error:
            self._permit.end(error)
            raise

    async def aclose(self) -> None:
        """Close the body below."""
        try:
            await self._stream.aclose()
        finally:
            self._permit.end()


@cache
def _class(kind: Any, base: Any) -> Any:
    return type(kind.__name__, (kind, base), {})


def hold(response: Any, permit: "OutgoingPermit", kind: Any, base: Any) -> None:
    """Hold a permit until a response is closed, whose library wants bodies to be of the class `base`."""
    if response.is_closed:  # one that was made from its whole content, as by a MockTransport
        permit.end()
    else:
        response.stream = _class(kind, base)(response.stream, permit)


def unsent(kind: Any, method: str | None, answer: tuple[int, Any, bytes]) -> Any:
    """Return the response, of this class of an urllib3, to a request that was not sent."""
    status, headers, body = answer
    phrase = HTTPStatus(status).phrase
    return kind(io.BytesIO(body), headers, status, reason=phrase, preload_content=False, request_method=method)


def again(parts: list[bytes], error: Exception) -> Iterator[bytes]:
    """Yield what was read of a body, and raise what ended it."""
    yield from parts
    raise error


def content(response: Any) -> bytes:
    """Read the body of a response whose `raw` is urllib3's. A later reader gets the same bytes, and the same error."""
    raw, parts = response.raw, list[bytes]()
    stream = raw.stream

    def noted(*args: Any, **options: Any) -> Iterator[bytes]:
        for part in stream(*args, **options):
            parts.append(part)
            yield part

    raw.stream = noted
    try:
        read: bytes = response.content
    except Exception as error:
        found = error
        raw.stream = lambda *_, **__: again(parts, found)
        raise
    return read
