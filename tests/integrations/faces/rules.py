"""What every application of the matrix is limited by."""

import asyncio
from typing import Any

from batchlimit import FailurePolicy
from batchlimit.rules import Rule

RULES = [
    Rule("all", "1000/hour", key="all", match=["/hello", "/search", "/included/*", "/mounted/*", "/routed/*"]),
    Rule("search", "4/hour", key="search:{user}", match=None, cost=2),
    Rule("item", "2/hour", key="item:{id}", match=None),
    Rule("bytes", "100/day", key="bytes:{user}", match=None, cost=50, charge=lambda response: response.sent),
    Rule(
        "gone", "9/hour", key="gone:{user}", match=None, cost=5, charge=lambda response: 0 if response.complete else 1
    ),
    Rule("login", "2/hour", key="login:{user}", match=None),
    Rule("broken", "2/hour", key="broken:{user}", match=None, charge=["5xx"]),
    Rule("handshake", "1/hour", key="handshake:{user}", match=None),
    Rule("closed", "100/hour", key="closed", match=None, on_failure="closed"),
    Rule("open", "100/hour", key="open", match=None, on_failure="open"),
    Rule("local", "100/hour", key="local", match=None, on_failure=FailurePolicy.local(instances=1)),
]

MESSAGES = [Rule("message", "2/hour", key="message:{user}", match="/chat")]
"""What the messages of a websocket are limited by."""


def user_of(scope: Any) -> dict[str, str]:
    return {"user": dict(scope["headers"]).get(b"x-user", b"nobody").decode("latin-1")}


async def parts() -> Any:
    for number in range(3):
        yield b"%d" % number * 10


async def endless() -> Any:
    while True:
        yield b"x" * 1000
        await asyncio.sleep(0)  # so that the server learns of the client
