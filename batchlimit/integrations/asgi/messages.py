"""What ASGI passes to and fro, by its names."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Any, Any, Any], Awaitable[None]]
"""Any application: frameworks have types of their own for these three."""

POLICY_VIOLATION = 1008
"""The code with which a websocket is closed that is over its limit."""
