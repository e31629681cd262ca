"""How a refusal is answered: by problem details, or by an application of the user's own."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from batchlimit.integrations.asgi.exchange import POLICY_VIOLATION, ASGIApp, Exchange, Receive, Scope, Send
from batchlimit.integrations.counters import Counters
from batchlimit.integrations.enforcement import Refusal
from batchlimit.integrations.headers import Header
from batchlimit.integrations.held_permit import spared

OnRejected = Callable[[Scope, Refusal], ASGIApp | Awaitable[ASGIApp]]


class Answers:
    """Answers requests that are refused.

    Args:
        on_rejected: a function of the scope and the Refusal that returns the ASGI application which answers.
        counters: count how often it raised.
    """

    __slots__ = ("_counters", "_on_rejected")

    def __init__(self, on_rejected: OnRejected | None, counters: Counters) -> None:
        self._on_rejected, self._counters = on_rejected, counters

    async def give(
        self, refusal: Refusal, scope: Scope, receive: Receive, send: Send, *, writes_fields: bool = True
    ) -> None:
        """Answer a request.

        Args:
            refusal: why it is refused.
            scope, receive, send: those of the request.
            writes_fields: whether the fields of the refusal are written here (default True); else someone else adds
                them to every response of this request.
        """
        spared(scope)
        fields = refusal.fields if writes_fields else []
        app = await self._own(scope, refusal)
        if app is not None:
            await Exchange(receive, send, fields).run(app, scope)
        else:
            await answer(refusal, scope, receive, send, fields)

    async def _own(self, scope: Scope, refusal: Refusal) -> ASGIApp | None:
        if self._on_rejected is None or scope["type"] != "http":
            return None
        try:
            told: Any = self._on_rejected(scope, refusal)
            found: ASGIApp = await told if inspect.isawaitable(told) else told
        except Exception as error:  # noqa: BLE001  told in the log
            self._counters.unanswered(refusal.rules, error)
            return None
        return found


async def answer(refusal: Refusal, scope: Scope, receive: Receive, send: Send, fields: list[Header]) -> None:
    """Answer a request, or the handshake of a websocket, with problem details and these fields."""
    headers = [*refusal.kind, *fields, (b"content-length", b"%d" % len(refusal.body))]
    if scope["type"] == "http":
        await _respond("http", refusal.status, headers, refusal.body, send)
    elif (await receive())["type"] == "websocket.connect":
        await _refuse_websocket(refusal.status, headers, refusal.body, scope, send)


async def _refuse_websocket(status: int, headers: list[Header], body: bytes, scope: Scope, send: Send) -> None:
    if "websocket.http.response" in (scope.get("extensions") or {}):
        await _respond("websocket.http", status, headers, body, send)
    else:
        await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": "over the limit"})


async def _respond(kind: str, status: int, headers: list[Header], body: bytes, send: Send) -> None:
    await send({"type": f"{kind}.response.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": body, "more_body": False})
