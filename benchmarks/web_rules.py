"""What all stacks of `benchmarks/web.py` are asked: one path, one user, one address, and limits that refuse nobody."""

from typing import Any

from batchlimit.rules import Rule

PLENTY = 1_000_000
"""Requests a second, and in a burst."""
_QUOTA = f"{PLENTY}/s burst {PLENTY}"
PATH = "/api/items/7"
ROUTE = "/api/items/{id}"
USER = b"ann"
FOUR = [
    Rule("address", _QUOTA, key="address:{ip}", match="/api/*"),
    Rule("user", _QUOTA, key="user:{user}", match="/api/*"),
    Rule("route", _QUOTA, key="route:{user}", match=f"GET {ROUTE}"),
    Rule("all", _QUOTA, key="all"),
]
ONE = FOUR[:1]
ASKED = [Rule("address", _QUOTA, key="address:{ip}", match=None)]
"""A rule that a route asks for."""
FLOOR = "two fixed fields"
EMPTY = "a dependency that does nothing"
FLOOR_OF_ONE, FLOOR_OF_FOUR = f"{FLOOR}, as long as of 1 rule", f"{FLOOR}, as long as of 4"


def of_scope(_scope: Any) -> dict[str, str]:
    """Say who asks, of an ASGI request."""
    return {"user": USER.decode()}


def of_environ(_environ: Any) -> dict[str, str]:
    """Say who asks, of a WSGI request."""
    return {"user": USER.decode()}
