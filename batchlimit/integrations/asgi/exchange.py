"""One request on its way through the application: it watches the response, and reports its end once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any

from batchlimit.integrations.enforcement import Response
from batchlimit.integrations.headers import Header

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Any, Any, Any], Awaitable[None]]
"""Any application: frameworks have types of their own for these three."""

POLICY_VIOLATION = 1008
"""The code with which a websocket is closed that is over its limit."""


_GONE = 499
"""The status of a request whose client went away before the response started."""
_FAILED = 500
_ACCEPTED = 101
_REFUSED = 403
_FILES = ("http.response.pathsend", "http.response.zerocopysend")
"""The server reads these bodies from a file itself."""


_RESPONSES = ("http.response.start", "websocket.http.response.start")
_STARTS = (*_RESPONSES, "websocket.accept")
_ENDS = ("http.response.body", *_FILES, "websocket.close")
_OPENINGS = {**dict.fromkeys(_RESPONSES, 0), "websocket.accept": _ACCEPTED, "websocket.close": _REFUSED}
"""What starts a response or ends a handshake, with the status that it means; 0: it says so itself."""


def with_fields(send: Send, fields: Sequence[Header]) -> Send:
    """Return a `send` that adds fields to the first start of a response, or to the acceptance of a websocket.

    Args:
        send: that of the server.
        fields: the fields to add; what they are is looked at when the response starts.
    """
    is_waiting = True

    def sending(message: Message) -> Awaitable[None]:
        nonlocal is_waiting
        if is_waiting and message["type"] in _STARTS:
            is_waiting = False
            message = {**message, "headers": [*(message.get("headers") or ()), *fields]}
        return send(message)

    return sending


class Exchange:
    """Adds fields to the start of one response, and knows how it ended.

    A body ends with its last part, and not with the application: that may have tasks to do in the background.

    Args:
        receive, send: those of the server.
        headers: the fields to add; what they are is looked at when the response starts.
        ended: is called once with the Response, as soon as it has ended (default None: nobody wants to know).

    Attributes:
        is_watched: whether anybody wants to know how the response ends: whoever made this, or a route that comes to be
            charged by it (default: as `ended` is given).
    """

    __slots__ = (
        "_ended",
        "_headers",
        "_is_complete",
        "_receive",
        "_send",
        "_sent",
        "_started",
        "_status",
        "_told",
        "is_watched",
    )

    def __init__(
        self,
        receive: Receive,
        send: Send,
        headers: Sequence[Header],
        ended: Callable[[Response], None] | None = None,
    ) -> None:
        self._receive, self._send, self._headers, self._ended = receive, send, headers, ended
        self._status, self._sent, self._started, self._is_complete = 0, 0, False, False
        self._told: Sequence[Header] = ()
        self.is_watched = ended is not None

    @property
    def has_started(self) -> bool:
        """Whether the response has begun."""
        return self._started

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Run the application; what it raises goes on to the server."""
        try:
            await app(scope, self.receive, self.send)
        except BaseException as error:
            self._end(error, _GONE if isinstance(error, asyncio.CancelledError) else _FAILED)
            raise
        self._end(None, _FAILED)

    async def receive(self) -> Message:
        """Receive, and notice that the client closed the connection."""
        message = await self._receive()
        if message["type"] in ("http.disconnect", "websocket.disconnect"):
            self._end(None, _GONE)
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """Send, and notice how the response starts and ends."""
        kind = message["type"]
        if not self._started and kind in _OPENINGS:
            message = self._start(kind, message)
        if self.is_watched:
            return self._watch(kind, message)
        if kind == "http.response.body":
            self._sent += len(message.get("body", b""))
        return self._send(message)

    async def _watch(self, kind: str, message: Message) -> None:
        before = self._sent
        self._hand_over(kind, message)
        try:
            await self._send(message)
        except Exception:
            self._sent, self._is_complete = before, False
            raise
        if self._is_complete:
            self._end(None, _FAILED)

    def _hand_over(self, kind: str, message: Message) -> None:
        """Take note of what the server is about to send: it may tell of a disconnect before its `send` returns."""
        if kind == "http.response.body":
            self._sent += len(message.get("body", b""))
        elif kind in _FILES and not message.get("more_body", False):
            self._sent = _length(self._told)
        self._is_complete = kind in _ENDS and not message.get("more_body", False)

    def _start(self, kind: str, message: Message) -> Message:
        """Take note of the start of a response; return it with the fields."""
        self._started = True
        self._status = message["status"] if kind in _RESPONSES else _OPENINGS[kind]
        if kind == "websocket.close":
            return message
        self._told = list(message.get("headers") or ())
        return {**message, "headers": [*self._told, *self._headers]}

    def _end(self, error: BaseException | None, otherwise: int) -> None:
        """Tell of the end, once; `otherwise` is the status of a response that did not start."""
        if self.is_watched and (ended := self._ended) is not None:
            self._ended = None
            complete = self._is_complete or (error is None and self._status == _ACCEPTED)
            ended(Response(self._status or otherwise, self._told, error, complete, self._sent))


def _length(headers: Iterable[Header]) -> int:
    """Return how many bytes a response says that it has; 0 if it does not say."""
    return next((int(value) for name, value in headers if name.lower() == b"content-length" and value.isdigit()), 0)
