"""The routes of every application of the matrix, and what it is limited by."""

from typing import Any

from batchlimit import FailurePolicy
from batchlimit.rules import Rule
from tests.integrations.made import Said, View, fails, says

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


def _told(connection: Any) -> dict[str, str]:
    return {"user": connection.headers.get("x-told", "told")}


VIEWS = [
    View("/hello", says("hello")),
    View("/search", says("found"), "search:{user}", in_thread=True),
    View("/search", says("found"), "search:{user}", within="included"),
    View("/search", says("found"), "search:{user}", within="mounted"),
    View("/told", says("found"), "search:{user}", identify=_told),
    View("/items/{id}", lambda request, id: Said(id), "item:{id}"),  # noqa: A006
    View("/stream", says("", stream="parts"), "bytes:{user}"),
    View("/breaks", says("", stream="broken"), "bytes:{user}"),
    View("/endless", says("", stream="endless"), "gone:{user}"),
    View("/login/{status:int}", lambda request, status: Said(status=int(status)), "login:{user}", charge=[401]),
    View("/broken", fails, "broken:{user}"),
    *[View(f"/{name}", says("here"), name) for name in ("closed", "open", "local")],
    View("/ws", None, "handshake:{user}"),
]
TYPO = View("/typo", says("here"), "serch:{user}")
