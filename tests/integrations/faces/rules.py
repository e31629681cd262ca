"""What every application of the matrix is limited by."""

from typing import Any

from batchlimit.rules import Rule

RULES = [
    Rule("all", "1000/hour", key="all", match=["/hello", "/search", "/included/*", "/mounted/*", "/routed/*"]),
    Rule("search", "5/hour", key="search:{user}", match=None, cost=2),
    Rule("item", "2/hour", key="item:{id}", match=None),
    Rule("bytes", "100/day", key="bytes:{user}", match=None, cost=50, charge=lambda response: response.sent),
    Rule("login", "2/hour", key="login:{user}", match=None),
    Rule("broken", "2/hour", key="broken:{user}", match=None, charge=["5xx"]),
    Rule("handshake", "1/hour", key="handshake:{user}", match=None),
    Rule("closed", "100/hour", key="closed", match=None, on_failure="closed"),
    Rule("open", "100/hour", key="open", match=None, on_failure="open"),
]


def user_of(scope: Any) -> dict[str, str]:
    return {"user": dict(scope["headers"]).get(b"x-user", b"nobody").decode("latin-1")}


async def parts() -> Any:
    for number in range(3):
        yield b"%d" % number * 10
