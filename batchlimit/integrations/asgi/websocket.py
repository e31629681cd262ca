"""Limits how many messages a websocket takes from its client."""

from typing import Any

from batchlimit.integrations.asgi.messages import POLICY_VIOLATION, Message, Receive, Send
from batchlimit.integrations.enforcement import AsyncEnforcer
from batchlimit.rules import Request


class LimitedMessages:
    """A websocket each of whose received messages is charged. The first one that is refused closes it.

    A message whose turn was cancelled while it was charged is not lost: the next call of `receive` returns it.

    To the application it looks as if the client had gone away: it receives `websocket.disconnect` with code 1008.

    Args:
        enforcer: holds the rules for messages.
        request: the handshake.
        receive, send: those of the server.
    """

    __slots__ = ("_closed", "_enforcer", "_receive", "_request", "_send", "_waiting")

    def __init__(self, enforcer: AsyncEnforcer, request: Request, receive: Receive, send: Send) -> None:
        self._enforcer, self._request, self._receive, self._send = enforcer, request, receive, send
        self._closed: dict[str, Any] | None = None
        self._waiting: Message | None = None

    async def receive(self) -> Message:
        """Receive; a message that is refused is not passed on, and is the last one."""
        if self._closed is not None:
            return self._closed
        message = self._waiting or await self._receive()
        if message["type"] != "websocket.receive":
            return message
        self._waiting = message
        outcome = await self._enforcer.admit(self._request)
        self._waiting = None
        if outcome.refusal is None:
            return message
        reason = "too many messages" if outcome.refusal.status == 429 else "messages cannot be admitted now"
        self._closed = {"type": "websocket.disconnect", "code": POLICY_VIOLATION, "reason": reason}
        await self._send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": reason})
        return self._closed

    async def send(self, message: Message) -> None:
        """Send, unless the websocket was closed here: as to a client that closed the connection."""
        if self._closed is None:
            await self._send(message)
