"""A server of FastMCP whose tools are limited by client, over all of its processes, with Redis at REDIS_URL."""

import os
from typing import Any

from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.dependencies import get_access_token
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext

from batchlimit import AsyncRateLimiter, StoreUnavailable

STORE = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
QUOTAS = {"tool:search:*": "30/minute burst 5", "tool:*": "10/s"}


def who_asks(context: MiddlewareContext[Any]) -> str:
    """Return the client of the access token; without one, the name by which the client goes, which it may change."""
    if (token := get_access_token()) is not None:
        return token.client_id
    told = context.fastmcp_context
    return (told.client_id if told else None) or "anonymous"


class FleetLimits(Middleware):
    """Charges each call of a tool to its client; the refusal tells the agent when to come back."""

    def __init__(self, limiter: AsyncRateLimiter) -> None:
        self._limiter = limiter

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """Call the tool if its client has a token."""
        tool = context.message.name
        try:
            decision = await self._limiter.decide(f"tool:{tool}:{who_asks(context)}")
        except StoreUnavailable:
            raise ToolError(f"{tool} is not available now: try again in a few seconds") from None
        if not decision:
            raise ToolError(f"{tool} was called too often: call it again in {decision.retry_after_seconds} seconds")
        return await call_next(context)


mcp = FastMCP("search", middleware=[FleetLimits(AsyncRateLimiter.from_url(STORE, QUOTAS))])


@mcp.tool
def search(text: str) -> str:
    """Search for a text."""
    return f"hits for {text}"
