"""A client of FastMCP hears when to call a tool again, and another one is not concerned."""

import asyncio
from typing import Any

import pytest

from batchlimit.testing import FrozenLimits

fastmcp = pytest.importorskip("fastmcp", reason="of the group 'agents'")


def test_a_client_that_calls_too_often_is_told_when_to_come_back(frozen_limits: FrozenLimits) -> None:
    from fastmcp.exceptions import ToolError

    from examples.fastmcp_limits import mcp

    async def call(name: str) -> str:
        return str((await client.call_tool("search", {"text": "cats"}, meta={"client_id": name})).data)

    client: Any = fastmcp.Client(mcp)

    async def main() -> None:
        async with client:
            assert [await call("ann") for _ in range(5)] == ["hits for cats"] * 5
            with pytest.raises(ToolError, match="call it again in 2 seconds"):
                await call("ann")
            assert await call("bob") == "hits for cats"
            frozen_limits.advance("2s")
            assert await call("ann") == "hits for cats"

    asyncio.run(main())
