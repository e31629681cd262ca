"""What ASGI passes to and fro, by its names."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from batchlimit.integrations.enforcement import Refusal

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Any, Any, Any], Awaitable[None]]
"""Any application: frameworks have types of their own for these three."""

POLICY_VIOLATION = 1008
"""The code with which a websocket is closed that is over its limit."""


async def answer(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request, or the handshake of a websocket, with a refusal."""
    headers = [*refusal.headers, (b"content-length", b"%d" % len(refusal.body))]
    if scope["type"] == "http":
        await _respond("http", refusal.status, headers, refusal.body, send)
    elif (await receive())["type"] == "websocket.connect":
        await _refuse_websocket(refusal.status, headers, refusal.body, scope, send)


async def _refuse_websocket(
    status: int, headers: list[tuple[bytes, bytes]], body: bytes, scope: Scope, send: Send
) -> None:
    if "websocket.http.response" in (scope.get("extensions") or {}):
        await _respond("websocket.http", status, headers, body, send)
    else:
        await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": "over the limit"})


async def _respond(kind: str, status: int, headers: list[tuple[bytes, bytes]], body: bytes, send: Send) -> None:
    await send({"type": f"{kind}.response.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": body, "more_body": False})
