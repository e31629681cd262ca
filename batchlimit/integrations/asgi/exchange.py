"""One request on its way through an application: it watches the response, reports its end once, or answers it."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from batchlimit.integrations.carried import give_back_permit
from batchlimit.integrations.counters import Counters
from batchlimit.integrations.enforcement import Refusal, Response
from batchlimit.integrations.headers import Header

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Any, Any, Any], Awaitable[None]]
"""Any application: frameworks have types of their own for these three."""

POLICY_VIOLATION = 1008
"""The code with which a websocket is closed that is over its limit."""

OnRejected = Callable[[Scope, Refusal], ASGIApp | Awaitable[ASGIApp]]


async def give_answer(
    on_rejected: OnRejected | None,
    counters: Counters,
    refusal: Refusal,
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    writes_fields: bool = True,
) -> None:
    """Answer a refused request by `on_rejected`, or with `answer`; not `writes_fields`: others add the fields."""
    give_back_permit(scope)
    fields = refusal.fields if writes_fields else []
    if on_rejected is not None and scope["type"] == "http":
        own = Exchange(receive, send, fields)
        try:
            told: Any = on_rejected(scope, refusal)
            app: ASGIApp | None = await told if inspect.isawaitable(told) else told
            if app is not None:
                await own.run(app, scope)
                return
        except Exception as error:
            if own.has_started:
                raise
            counters.unanswered(refusal.rules, error)
    await answer(refusal, scope, receive, send, fields)


async def answer(refusal: Refusal, scope: Scope, receive: Receive, send: Send, fields: list[Header]) -> None:
    """Answer a request, or the handshake of a websocket, with problem details and these fields."""
    kind = "http"
    if scope["type"] == "websocket":
        if (await receive())["type"] != "websocket.connect":
            return
        if "websocket.http.response" not in (scope.get("extensions") or {}):
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": "over the limit"})
            return
        kind = "websocket.http"
    headers = [*refusal.kind, *fields, (b"content-length", b"%d" % len(refusal.body))]
    await send({"type": f"{kind}.response.start", "status": refusal.status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": refusal.body, "more_body": False})


_GONE = 499
"""The status of a request whose client went away before the response started."""
_FAILED = 500
_ACCEPTED = 101
_REFUSED = 403
_FILES = ("http.response.pathsend", "http.response.zerocopysend")
"""The server reads these bodies from a file itself."""


RESPONSES = ("http.response.start", "websocket.http.response.start")
_ENDS = ("http.response.body", *_FILES, "websocket.close")
_OPENINGS = {**dict.fromkeys(RESPONSES, 0), "websocket.accept": _ACCEPTED, "websocket.close": _REFUSED}
"""What starts a response or ends a handshake, with the status that it means; 0: it says so itself."""


class Exchange:
    """Adds fields to the start of one response, and tells of its end: with its last part, or when its client leaves."""

    __slots__ = (
        "_ended", "_fields", "_has_left", "_headers", "_is_complete", "_is_over", "_lasts", "_receive", "_send",
        "_sent", "_status", "has_started", "is_watched",
    )  # fmt: skip

    def __init__(
        self,
        receive: Receive,
        send: Send,
        fields: Sequence[Header],
        ended: Callable[[Response], None] | None = None,
        *,
        lasts: bool = False,
    ) -> None:
        self._lasts, self._has_left = lasts, False  # who left ends it with the application, which works on for a while
        self._receive, self._send, self._fields, self._ended = receive, send, fields, ended
        self._status, self._sent, self.has_started, self._is_complete, self._is_over = 0, 0, False, False, False
        self._headers: Sequence[Header] = ()  # of the response, without our fields
        # Whether anybody wants to know how the response ends: whoever made this, or a route that is charged by it.
        self.is_watched = ended is not None

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Run the application; what it raises goes on to the server."""
        try:
            await app(scope, self.receive, self.send)
        except BaseException as error:
            self._end(error, _GONE if self._has_left or isinstance(error, asyncio.CancelledError) else _FAILED)
            raise
        else:
            self._end(None, _GONE if self._has_left else _FAILED)
        finally:
            if (rest := self._leave(scope)) is not None:
                await rest

    async def receive(self) -> Message:
        """Receive, and notice that the client closed the connection."""
        message = await self._receive()
        if message["type"] in ("http.disconnect", "websocket.disconnect"):
            self._has_left = True
            if not self._lasts:
                self._end(None, _GONE)
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """Send, and notice how the response starts and ends. Bytes count before it is watched: a route may ask late."""
        kind = message["type"]
        if not self.has_started and kind in _OPENINGS:
            self.has_started, self._status = True, _OPENINGS[kind] or message["status"]
            if kind != "websocket.close":
                self._headers = list(message.get("headers") or ())
                message = {**message, "headers": [*self._headers, *self._fields]}
        if self.is_watched:
            return self._watch(kind, message)
        if kind == "http.response.body" and "body" in message:
            self._sent += len(message["body"])
        return self._send(message)

    async def _watch(self, kind: str, message: Message) -> None:
        before = self._sent  # noted before it is sent: a server may tell of a disconnect before its `send` returns
        if kind == "http.response.body":
            self._sent += len(message.get("body", b""))
        elif kind in _FILES and not message.get("more_body", False):
            lengths = [value for name, value in self._headers if name.lower() == b"content-length" and value.isdigit()]
            self._sent = int(lengths[0]) if lengths else 0
        is_last = kind in _ENDS and not message.get("more_body", False)
        self._is_complete = is_last and not self._has_left
        try:
            await self._send(message)
        except Exception:
            self._sent, self._is_complete = before, False
            raise
        if is_last:
            self._end(None, _FAILED)

    def _end(self, error: BaseException | None, otherwise: int) -> None:
        """Tell of the end, once; `otherwise` is the status of a response that did not start."""
        if self.is_watched and not self._is_over:
            self._is_over = True
            complete = self._is_complete or (error is None and self._status == _ACCEPTED)
            self._tell(Response(self._status or otherwise, self._headers, error, complete, self._sent))

    def _tell(self, response: Response) -> None:
        """Tell of the end."""
        if self._ended is not None:
            self._ended(response)

    def _leave(self, scope: Scope) -> Awaitable[object] | None:
        """Return what to wait for before the server goes on; None: nothing."""
